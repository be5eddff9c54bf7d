// SPDX-License-Identifier: Apache-2.0
#include "nic/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "link/udp_socket.h"
#include "nic/port_holder.h"

namespace verbena::nic {
namespace {

/// A held slot's buffer, if net.core.rmem_max lets it be so large.
constexpr int kReceiveBuffer = 4 << 20;
/// How long others may take to set an address up, or to leave it.
constexpr int kLockAttempts = 1500;
constexpr int kLeaveAttempts = 150;
/// How long processes are given to answer: little at first, since others may be quicker, then twice
/// as much each time, since they may be waiting for a busy processor. Then they count as stopped.
constexpr std::chrono::milliseconds kFirstPatience{50};
constexpr std::chrono::milliseconds kLastPatience{800};
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 2'000'000};

void pause() { sys::ppoll(nullptr, 0, &kPause); }

/// Holds an address's set-up lock.
Result<LedgerFd> lock_address(const wire::Address& address, ForkLedger& ledger) {
  const std::string name = lock_name(address);
  for (int i = 0; i < kLockAttempts; ++i) {
    auto held = listen_at(name);
    if (held) return LedgerFd(ledger, std::move(*held));
    if (held.error().condition != std::errc::address_in_use)
      return std::unexpected(std::move(held).error());
    pause();
  }
  return fail(std::errc::timed_out,
              fmt::format("{} has been setting up {} for {} s: is it stopped?",
                          describe_process(listener_of(name)), wire::to_string(address),
                          kLockAttempts * kPause.tv_nsec / 1'000'000'000));
}

/// What asking all slots came to.
struct Round {
  std::optional<Invitation> invitation{};
  std::optional<Error> error{};
  pid_t silent = 0;  ///< a process that did not answer
};

Round ask_all(const wire::Address& address, std::chrono::milliseconds patience) {
  Round round;
  std::set<pid_t> silent;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    const std::string name = slot_name(address, slot);
    // A stopped process is waited for once, whatever number of slots it holds.
    if (!silent.empty() && silent.contains(listener_of(name))) continue;
    Answer answer = ask(name, patience);
    switch (answer.kind) {
      case Answer::Kind::kNobody:
      case Answer::Kind::kForeign: break;
      case Answer::Kind::kSilent:
        silent.insert(answer.pid);
        round.silent = answer.pid;
        break;
      case Answer::Kind::kOwn:
        round.error = Error(std::errc::already_connected,
                            fmt::format("this process is at {} already, through another host",
                                        wire::to_string(address)));
        return round;
      case Answer::Kind::kSkew:
        round.error = Error(
            std::errc::protocol_not_supported,
            fmt::format("{} is used by {} with another version of Verbena (fabric {}, ours is "
                        "{}): stop it, or use the same version",
                        wire::to_string(address), describe_process(answer.pid), answer.version,
                        kFabricVersion));
        return round;
      case Answer::Kind::kInvited: round.invitation = std::move(answer.invitation); return round;
    }
  }
  return round;
}

struct Parts {
  FabricDirectory directory;
  SocketPool pool;
};

Result<Parts> accept_invitation(Invitation invitation, const wire::Address& address,
                                ForkLedger& ledger) {
  if (!is_pool(invitation.pool, address))
    return fail(std::errc::bad_message,
                fmt::format("what a process handed over is no pool of sockets at {}",
                            wire::to_string(address)));
  auto directory = VERBENA_TRY(FabricDirectory::open(ledger, std::move(invitation.directory)));
  return Parts{.directory = std::move(directory), .pool = std::move(invitation.pool)};
}

Error in_use(const wire::Address& address, const std::optional<PortHolder>& holder, pid_t silent) {
  const std::string where =
      fmt::format("UDP port {} at {} is in use", wire::kRoceUdpPort, wire::to_string(address));
  if (silent != 0)
    return {std::errc::address_in_use,
            fmt::format("{} by {}, which does not answer: is it stopped?", where,
                        describe_process(silent))};
  if (!holder) return {std::errc::address_in_use, where + " by somebody who cannot be seen"};
  return {std::errc::address_in_use,
          fmt::format("{} by {}; choose another address", where, describe(*holder))};
}

/// With the address's lock held: joins who came meanwhile, or makes the pool.
Result<Parts> join_or_create(const wire::Address& address, ForkLedger& ledger) {
  std::optional<PortHolder> holder;
  pid_t silent = 0;
  auto patience = kFirstPatience;
  for (int i = 0; i < kLeaveAttempts; ++i) {
    Round round = ask_all(address, patience);
    if (round.error) return std::unexpected(std::move(*round.error));
    if (round.invitation) return accept_invitation(std::move(*round.invitation), address, ledger);
    const auto free = check_exclusive(address);
    if (free) {
      auto directory = VERBENA_TRY(FabricDirectory::create(ledger));
      auto pool = VERBENA_TRY(create_pool(address));
      return Parts{.directory = std::move(directory), .pool = std::move(pool)};
    }
    if (free.error().condition != std::errc::address_in_use)
      return std::unexpected(std::move(free).error());
    // A process of ours may be just leaving; its sockets go a moment after its names. Who listens
    // and is silent, or is nobody of ours, will not go.
    holder = port_holder(address);
    silent = round.silent;
    if (round.silent != 0 && patience < kLastPatience) {
      patience *= 2;
      continue;
    }
    const bool leaving =
        round.silent == 0 && (!holder || (holder->inode != 0 && holder->uid == sys::geteuid()));
    if (!leaving) break;
    pause();
  }
  return std::unexpected(in_use(address, holder, silent));
}

}  // namespace

Result<Fabric::Joined> Fabric::join(const wire::Address& address, Watcher& watcher,
                                    ForkLedger& ledger) {
  const auto enter = [&](Parts parts) -> Result<Joined> {
    auto fabric = std::make_shared<Fabric>(Token{}, address, watcher, ledger,
                                           std::move(parts.directory), std::move(parts.pool));
    Slot slot = VERBENA_TRY(fabric->take_slot());
    return Joined{.fabric = std::move(fabric), .slot = std::move(slot)};
  };
  Round round = ask_all(address, kFirstPatience);
  if (round.error) return std::unexpected(std::move(*round.error));
  if (round.invitation)
    return enter(VERBENA_TRY(accept_invitation(std::move(*round.invitation), address, ledger)));
  // The lock is held until the first slot's name is there for the next one to find.
  const LedgerFd lock = VERBENA_TRY(lock_address(address, ledger));
  return enter(VERBENA_TRY(join_or_create(address, ledger)));
}

Fabric::Fabric(Token, const wire::Address& address, Watcher& watcher, ForkLedger& ledger,
               FabricDirectory directory, SocketPool pool)
    : address_(address), watcher_(watcher), ledger_(ledger), directory_(std::move(directory)) {
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    pool_[slot] = pool[slot].get();
    sockets_[slot] = LedgerFd(ledger, std::move(pool[slot]));
  }
}

Result<Fabric::Slot> Fabric::take_slot() {
  const std::scoped_lock lock(mutex_);
  const std::size_t first = directory_.next_slot();
  for (std::size_t i = 0; i < kSlots; ++i) {
    const std::size_t slot = (first + i) % kSlots;
    if (listeners_[slot]) continue;
    auto box = try_take(slot);
    if (!box) continue;
    directory_.set_next_slot(slot + 1);
    return Slot{
        .number = static_cast<std::uint8_t>(slot),
        .socket = pool_[slot],
        .lease = std::shared_ptr<const void>(
            this, [self = shared_from_this(), slot](const void*) { self->give_back(slot); }),
        .box = std::move(box)};
  }
  return fail(std::errc::no_buffer_space,
              fmt::format("all {} places at {} are taken", kSlots, wire::to_string(address_)));
}

/// With the mutex held. Nothing when the slot cannot be had.
std::unique_ptr<StrayBox> Fabric::try_take(std::size_t slot) {
  if (!directory_.lock(slot)) return nullptr;
  // The names may outlive their process in a forked child that does not know of us: leave the slot.
  auto listener = listen_at(slot_name(address_, slot));
  auto box = StrayBox::open(address_, static_cast<std::uint8_t>(slot), directory_, ledger_);
  if (!listener || !box) {
    directory_.unlock(slot);
    return nullptr;
  }
  listeners_[slot] = LedgerFd(ledger_, std::move(*listener));
  const int fd = listeners_[slot].get();
  const auto answer = [this, fd] { answer_all(fd, directory_.descriptor(), pool_); };
  if (!watcher_.watch(fd, answer)) {
    listeners_[slot].reset();
    directory_.unlock(slot);
    return nullptr;
  }
  drain(pool_[slot]);
  link::set_receive_buffer(pool_[slot], kReceiveBuffer);
  return std::move(*box);
}

void Fabric::give_back(std::size_t slot) {
  if (ledger_.forked()) return;
  const std::scoped_lock lock(mutex_);
  watcher_.unwatch(listeners_[slot].get());
  listeners_[slot].reset();
  link::set_receive_buffer(pool_[slot], 0);
  directory_.unlock(slot);
}

bool is_available(const wire::Address& address) {
  // Not by binding: somebody who is just setting the address up would find it taken.
  if (!port_holder(address)) return true;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (listener_of(slot_name(address, slot)) != 0) return true;
  }
  return false;
}

}  // namespace verbena::nic
