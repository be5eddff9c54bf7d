// SPDX-License-Identifier: Apache-2.0
#include "nic/same_host.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/log.h"
#include "link/address_switch.h"

namespace verbena::nic {
namespace {

constexpr std::chrono::milliseconds kPatience{50};
constexpr std::size_t kOffered = 3;

bool has_hung_up(int bell) {
  pollfd poll{.fd = bell, .events = 0, .revents = 0};
  constexpr timespec kNoTime{.tv_sec = 0, .tv_nsec = 0};
  return sys::ppoll(&poll, 1, &kNoTime) > 0;
}

}  // namespace

void SameHost::add(const wire::Address& address, std::uint8_t slot,
                   const std::shared_ptr<link::ShmChannels>& channels) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(slots_, [](const auto& one) { return one.second.expired(); });
  std::erase_if(met_, [](const auto& one) { return one.second.bell.expired(); });
  slots_[{address, slot}] = channels;
}

std::uint16_t SameHost::meet(const wire::Path& path, std::uint8_t slot,
                             std::uint32_t destination_qp) {
  const SlotPair pair{.own = path.source,
                      .peer = path.destination,
                      .own_slot = slot,
                      .peer_slot = static_cast<std::uint8_t>(destination_qp >> link::kSlotShift)};
  const std::scoped_lock lock(meeting_);
  if (const std::uint16_t number = known(pair); number != 0) return number;
  Caller caller(slot_name(pair.peer, pair.peer_slot), kPatience);
  using enum Caller::Outcome;
  // Who cannot be asked cannot ask either.
  const bool near =
      caller.outcome() == kReady || caller.outcome() == kOwn || caller.outcome() == kSilent;
  if (!near || apart(pair, caller.pid())) return 0;
  const auto introduced = introduce(pair, caller);
  if (introduced) return *introduced;
  log(LogLevel::kDebug, "slot {} of {} is reached by the network: {}", pair.peer_slot,
      wire::to_string(pair.peer), introduced.error().message);
  return stay_apart(pair, caller.pid());
}

/// The channel to somebody met before, who is still there; 0 for none.
std::uint16_t SameHost::known(const SlotPair& pair) {
  const std::scoped_lock lock(mutex_);
  const auto found = met_.find(pair);
  if (found == met_.end()) return 0;
  const auto bell = found->second.bell.lock();
  if (bell != nullptr && !has_hung_up(bell->get())) return found->second.number;
  const auto slot = slots_.find({pair.own, pair.own_slot});
  const auto channels = slot == slots_.end() ? nullptr : slot->second.lock();
  if (channels != nullptr && bell != nullptr) channels->close(found->second.number);
  met_.erase(found);
  return 0;
}

bool SameHost::apart(const SlotPair& pair, pid_t peer) {
  const std::scoped_lock lock(mutex_);
  const auto found = apart_.find(pair);
  return found != apart_.end() && found->second == peer;
}

/// Unless the peer has opened a channel meanwhile.
std::uint16_t SameHost::stay_apart(const SlotPair& pair, pid_t peer) {
  const std::scoped_lock lock(mutex_);
  if (const auto met = met_.find(pair); met != met_.end()) return met->second.number;
  apart_[pair] = peer;
  return 0;
}

Result<std::uint16_t> SameHost::introduce(const SlotPair& pair, Caller& caller) {
  const bool here = caller.outcome() == Caller::Outcome::kOwn;
  if (caller.outcome() == Caller::Outcome::kSilent)
    return fail(std::errc::timed_out, "the process there does not answer");
  auto there = VERBENA_TRY(link::RingMemory::create());
  auto back = VERBENA_TRY(link::RingMemory::create());
  std::array<int, 2> bells{-1, -1};
  if (sys::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, bells.data()) != 0)
    return fail(static_cast<std::errc>(errno), "no descriptors for a channel's bell");
  sys::OwnedFd own_bell = sys::move_high(sys::OwnedFd(bells[0]));
  sys::OwnedFd peer_bell = sys::move_high(sys::OwnedFd(bells[1]));
  if (here) {
    ChannelOffer offer{.pair = pair.from_peer(), .from = caller.pid()};
    offer.descriptors.push_back(std::move(back.descriptor));
    offer.descriptors.push_back(std::move(there.descriptor));
    offer.descriptors.push_back(std::move(peer_bell));
    VERBENA_TRY(accept(std::move(offer)));
  } else {
    const std::array offered{back.descriptor.get(), there.descriptor.get(), peer_bell.get()};
    // Who was stopped in the middle of it finds the offer later.
    const auto taken = caller.offer(pair.from_peer(), offered);
    if (!taken && taken.error().condition != std::errc::timed_out)
      return std::unexpected(taken.error());
  }
  return open(
      pair, caller.pid(),
      {.out = std::move(there.memory), .in = std::move(back.memory), .bell = std::move(own_bell)});
}

Result<void> SameHost::accept(ChannelOffer offer) {
  std::vector<sys::OwnedFd>& descriptors = offer.descriptors;
  if (descriptors.size() != kOffered)
    return fail(std::errc::bad_message, "no channel came with the offer");
  int type = 0;
  socklen_t size = sizeof type;
  if (sys::getsockopt(descriptors[2].get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      type != SOCK_SEQPACKET)
    return fail(std::errc::bad_message, "a channel's bell is no such socket");
  auto out = VERBENA_TRY(link::RingMemory::open(descriptors[0].get()));
  auto in = VERBENA_TRY(link::RingMemory::open(descriptors[1].get()));
  VERBENA_TRY(open(offer.pair, offer.from,
                   {.out = std::move(out),
                    .in = std::move(in),
                    .bell = sys::move_high(std::move(descriptors[2]))}));
  return {};
}

/// The channel as the slot of this process has it. One that there was before stays open: packets
/// may be in it.
Result<std::uint16_t> SameHost::open(const SlotPair& pair, pid_t peer, Half half) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = apart_.find(pair); found != apart_.end()) {
    if (found->second == peer) return fail(std::errc::connection_refused, "the slots stay apart");
    apart_.erase(found);
  }
  const auto found = slots_.find({pair.own, pair.own_slot});
  const auto channels = found == slots_.end() ? nullptr : found->second.lock();
  if (channels == nullptr)
    return fail(std::errc::address_not_available, "the slot takes no channels");
  auto bell = std::make_shared<const LedgerFd>(ledger_, std::move(half.bell));
  const std::uint16_t number = VERBENA_TRY(channels->open({.out = std::move(half.out),
                                                           .in = std::move(half.in),
                                                           .own = pair.own,
                                                           .peer = pair.peer,
                                                           .bell = bell->get(),
                                                           .keep = bell}));
  met_[pair] = {.bell = bell, .number = number};
  return number;
}

}  // namespace verbena::nic
