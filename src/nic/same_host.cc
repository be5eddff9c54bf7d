// SPDX-License-Identifier: Apache-2.0
#include "nic/same_host.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/log.h"
#include "link/address_switch.h"
#include "link/bell.h"
#include "link/fetch_choice.h"
#include "nic/monotonic_clock.h"

namespace verbena::nic {
namespace {

constexpr std::chrono::milliseconds kPatience{50};
/// Descriptors of an offer; behind them, where there are ways to memory, that of the words and what
/// opens it: a board, and the files of who shares memory.
constexpr std::size_t kOffered = 3;
constexpr std::size_t kBoard = 1;
constexpr std::size_t kBoardAndFiles = 3;

bool opens_memory(std::size_t descriptors) {
  return descriptors == kBoard || descriptors == kBoardAndFiles;
}

std::vector<sys::OwnedFd> duplicates(std::span<const int> descriptors) {
  std::vector<sys::OwnedFd> made;
  for (const int fd : descriptors) made.emplace_back(sys::fcntl(fd, F_DUPFD_CLOEXEC));
  return made;
}

}  // namespace

void SameHost::share_memory(const std::function<unsigned()>& own_threads) {
  auto pages = SharedPages::create(ledger_, own_threads);
  if (pages) {
    pages_ = std::move(*pages);
  } else {
    log(LogLevel::kInfo, "no memory is shared with processes of this machine: {}",
        pages.error().message);
  }
}

std::shared_ptr<DirectPaths> SameHost::add(const wire::Address& address, std::uint8_t slot,
                                           const std::shared_ptr<link::ShmChannels>& channels) {
  Slot made{.channels = channels};
  std::shared_ptr<DirectPaths> paths;
  const bool opens = pages_ != nullptr || fetching_ != Fetching::kNever;
  auto board = opens ? DirectBoard::create() : fail(std::errc::not_supported);
  if (board) {
    made.board = std::make_shared<const LedgerFd>(ledger_, std::move(board->descriptor));
    paths = std::make_shared<DirectPaths>(std::move(board->board), fetching_ != Fetching::kNever);
    made.paths = paths;
  } else if (opens) {
    log(LogLevel::kInfo, "no memory is opened to processes of this machine: {}",
        board.error().message);
  }
  const std::scoped_lock lock(mutex_);
  std::erase_if(slots_, [](const auto& one) { return one.second.channels.expired(); });
  forget([](const SlotPair&, const Channel& channel) { return channel.bell.expired(); });
  slots_[{address, slot}] = std::move(made);
  return paths;
}

std::uint16_t SameHost::meet(const wire::Path& path, std::uint8_t slot,
                             std::uint32_t destination_qp) {
  const SlotPair pair{.own = path.source,
                      .peer = path.destination,
                      .own_slot = slot,
                      .peer_slot = static_cast<std::uint8_t>(destination_qp >> link::kSlotShift)};
  const std::scoped_lock lock(meeting_);
  forget_gone();
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

/// The channels to those who have died, and the memory of theirs that is mapped, go with the next
/// one who comes.
void SameHost::forget_gone() {
  const std::scoped_lock lock(mutex_);
  forget([this](const SlotPair& pair, const Channel& channel) {
    if (!channel.has_hung_up()) return false;
    if (!channel.bell.expired()) close(pair, channel.number);
    return true;
  });
}

template <typename Gone>
void SameHost::forget(const Gone& gone) {
  for (auto& [pair, channels] : met_)
    std::erase_if(channels, [&](const Channel& channel) { return gone(pair, channel); });
  std::erase_if(met_, [](const auto& one) { return one.second.empty(); });
}

bool SameHost::Channel::has_hung_up() const {
  const auto held = bell.lock();
  return held == nullptr || link::has_hung_up(held->get());
}

void SameHost::close(const SlotPair& pair, std::uint16_t number) {
  const auto slot = slots_.find({pair.own, pair.own_slot});
  if (slot == slots_.end()) return;
  if (const auto channels = slot->second.channels.lock()) channels->close(number);
  if (const auto paths = slot->second.paths.lock()) paths->close(number);
}

/// The channel to somebody met before; 0 for none.
std::uint16_t SameHost::known(const SlotPair& pair) {
  const std::scoped_lock lock(mutex_);
  const auto found = met_.find(pair);
  return found == met_.end() ? 0 : found->second.back().number;
}

bool SameHost::apart(const SlotPair& pair, pid_t peer) {
  const std::scoped_lock lock(mutex_);
  const auto found = apart_.find(pair);
  return found != apart_.end() && found->second == peer;
}

bool SameHost::has_room(const SlotPair& pair) {
  const std::scoped_lock lock(mutex_);
  const auto slot = slots_.find({pair.own, pair.own_slot});
  const auto channels = slot == slots_.end() ? nullptr : slot->second.channels.lock();
  return channels != nullptr && !channels->is_full();
}

/// Unless the peer has opened a channel meanwhile.
std::uint16_t SameHost::stay_apart(const SlotPair& pair, pid_t peer) {
  const std::scoped_lock lock(mutex_);
  const auto met = met_.find(pair);
  if (met != met_.end() && !met->second.back().has_hung_up()) return met->second.back().number;
  apart_[pair] = peer;
  return 0;
}

Result<std::uint16_t> SameHost::introduce(const SlotPair& pair, Caller& caller) {
  const bool here = caller.outcome() == Caller::Outcome::kOwn;
  if (caller.outcome() == Caller::Outcome::kSilent)
    return fail(std::errc::timed_out, "the process there does not answer");
  // Before the peer has its half, and uses it.
  if (!has_room(pair))
    return fail(std::errc::no_buffer_space, "the slot has all the channels that it may");
  auto there = VERBENA_TRY(link::RingMemory::create());
  auto back = VERBENA_TRY(link::RingMemory::create());
  std::array<int, 2> bells{-1, -1};
  if (sys::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, bells.data()) != 0)
    return fail(static_cast<std::errc>(errno), "no descriptors for a channel's bell");
  sys::OwnedFd own_bell = sys::move_high(sys::OwnedFd(bells[0]));
  sys::OwnedFd peer_bell = sys::move_high(sys::OwnedFd(bells[1]));
  std::vector<int> offered{back.descriptor.get(), there.descriptor.get(), peer_bell.get()};
  std::optional<ReachWords::Made> words;
  if (const std::vector<int> opens = opened_by(pair); !opens.empty()) {
    words = VERBENA_TRY(ReachWords::create());
    offered.push_back(words->descriptor.get());
    offered.insert(offered.end(), opens.begin(), opens.end());
  }
  std::vector<sys::OwnedFd> answer;
  if (here) {
    answer = VERBENA_TRY(accept(
        {.pair = pair.from_peer(), .from = caller.pid(), .descriptors = duplicates(offered)}));
  } else {
    // Who was stopped in the middle of it finds the offer later.
    auto taken = caller.offer(pair.from_peer(), offered);
    if (taken) answer = std::move(*taken);
    if (!taken && taken.error().condition != std::errc::timed_out)
      return std::unexpected(taken.error());
  }
  Half half{
      .out = std::move(there.memory), .in = std::move(back.memory), .bell = std::move(own_bell)};
  // The peer has the channel by now: without the way to its memory it is used all the same.
  if (words) half.direct = path_by(answer, words->words, 0);
  return open(pair, caller.pid(), std::move(half));
}

Result<std::vector<sys::OwnedFd>> SameHost::accept(ChannelOffer offer) {
  std::vector<sys::OwnedFd>& descriptors = offer.descriptors;
  const bool with_memory =
      descriptors.size() > kOffered && opens_memory(descriptors.size() - kOffered - 1);
  if (descriptors.size() != kOffered && !with_memory)
    return fail(std::errc::bad_message, "no channel came with the offer");
  int type = 0;
  socklen_t size = sizeof type;
  if (sys::getsockopt(descriptors[2].get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      type != SOCK_SEQPACKET)
    return fail(std::errc::bad_message, "a channel's bell is no such socket");
  auto out = VERBENA_TRY(link::RingMemory::open(descriptors[0].get()));
  auto in = VERBENA_TRY(link::RingMemory::open(descriptors[1].get()));
  Half half{.out = std::move(out),
            .in = std::move(in),
            .bell = sys::move_high(std::move(descriptors[2]))};
  std::vector<sys::OwnedFd> answer;
  if (with_memory) {
    answer = duplicates(opened_by(offer.pair));
    auto words = ReachWords::open(descriptors[kOffered].get());
    if (words && !answer.empty())
      half.direct = path_by(std::span(descriptors).subspan(kOffered + 1), *words, 1);
    if (!half.direct) answer.clear();
  }
  VERBENA_TRY(open(offer.pair, offer.from, std::move(half)));
  return answer;
}

/// The way to a peer's memory, by what it has handed over, if it is such. Files are of use where
/// both share memory.
std::optional<DirectPath> SameHost::path_by(std::span<sys::OwnedFd> opens, ReachWords& words,
                                            std::size_t end) {
  if (!opens_memory(opens.size())) return std::nullopt;
  auto board = DirectBoard::open(opens[0].get());
  auto pages = pages_ != nullptr && opens.size() == kBoardAndFiles
                   ? PeerPages::open(ledger_, std::move(opens[1]), std::move(opens[2]))
                   : PeerPages();
  if (!board || !pages) return std::nullopt;
  return DirectPath{.board = std::move(*board),
                    .pages = std::make_unique<PeerPages>(std::move(*pages)),
                    .words = std::make_unique<ReachWords>(std::move(words)),
                    .end = end};
}

/// What opens the memory of the own slot of a pair: its board, and the files where memory is
/// shared.
std::vector<int> SameHost::opened_by(const SlotPair& pair) {
  const std::scoped_lock lock(mutex_);
  const auto slot = slots_.find({pair.own, pair.own_slot});
  if (slot == slots_.end() || slot->second.paths.expired()) return {};
  if (pages_ == nullptr) return {slot->second.board->get()};
  const auto [writable, readable] = pages_->descriptors();
  return {slot->second.board->get(), writable, readable};
}

/// That of a channel which there is already, or a new one.
std::shared_ptr<link::FetchChoice> SameHost::choice_of(const SlotPair& pair) const {
  const auto found = met_.find(pair);
  const auto known = found == met_.end() ? nullptr : found->second.back().choice;
  return known != nullptr ? known : std::make_shared<link::FetchChoice>(monotonic_now);
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
  const auto channels = found == slots_.end() ? nullptr : found->second.channels.lock();
  if (channels == nullptr)
    return fail(std::errc::address_not_available, "the slot takes no channels");
  auto bell = std::make_shared<const LedgerFd>(ledger_, std::move(half.bell));
  const pid_t source = fetched_from(peer, fetching_);
  const bool long_too = source != 0 && fetches_long(fetching_);
  // Elsewhere what is long is fetched while the ring is slow.
  const bool weighs = source != 0 && !long_too && fetching_ == Fetching::kAuto;
  const auto choice = weighs ? choice_of(pair) : nullptr;
  const std::uint16_t number = VERBENA_TRY(channels->open({.out = std::move(half.out),
                                                           .in = std::move(half.in),
                                                           .own = pair.own,
                                                           .peer = pair.peer,
                                                           .bell = bell->get(),
                                                           .keep = bell,
                                                           .fetch_from = source,
                                                           .choice = choice}));
  if (const auto paths = found->second.paths.lock(); paths != nullptr && half.direct) {
    half.direct->own = pair.own;
    half.direct->peer = pair.peer;
    half.direct->there = [bell] { return !link::has_hung_up(bell->get()); };
    if (source != 0) {
      half.direct->fetch = [source](std::uint64_t address, std::span<const Bytes> to) {
        return fetch(source, address, to);
      };
    }
    if (!long_too) half.direct->most_fetched = kShortRead;
    half.direct->choice = choice;
    paths->open(number, std::move(*half.direct));
  }
  met_[pair].push_back({.bell = bell, .number = number, .choice = choice});
  return number;
}

}  // namespace verbena::nic
