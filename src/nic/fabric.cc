// SPDX-License-Identifier: Apache-2.0
#include "nic/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "base/log.h"
#include "link/udp_socket.h"
#include "nic/fabric_parts.h"
#include "nic/port_holder.h"
#include "nic/proc_descriptors.h"

namespace verbena::nic {
namespace {

/// A held slot's buffer, if net.core.rmem_max lets it be so large.
constexpr int kReceiveBuffer = 4 << 20;
/// How long others may take to leave an address.
constexpr int kLeaveAttempts = 150;
/// How long processes are given to answer: little at first, since others may be quicker, then twice
/// as much each time, since they may be waiting for a busy processor. Then they count as stopped.
constexpr std::chrono::milliseconds kFirstPatience{50};
constexpr std::chrono::milliseconds kLastPatience{800};
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 2'000'000};
/// How often, a pause apart, the ports are tried that another process has.
constexpr int kPortsAttempts = 1000;

void pause() { sys::ppoll(nullptr, 0, &kPause); }

/// What asking all slots came to.
struct Round {
  std::optional<FabricParts> parts{};
  std::optional<Error> error{};  ///< when there are no parts: why a process handed none over
  /// Why nothing could be taken from a process that did not answer.
  std::optional<Error> obstacle{};
};

/// Why a process that listens hands nothing over, unless it is just silent or not ours.
std::optional<Error> refusal(const Caller& caller, const wire::Address& address) {
  if (caller.outcome() == Caller::Outcome::kOwn)
    return Error(std::errc::already_connected,
                 fmt::format("this process is at {} already, through another host",
                             wire::to_string(address)));
  if (caller.outcome() == Caller::Outcome::kSkew)
    return Error(std::errc::protocol_not_supported,
                 fmt::format("{} is used by {} with another version of Verbena (fabric {}, ours is "
                             "{}): stop it, or use the same version",
                             wire::to_string(address), describe_process(caller.pid()),
                             caller.version(), kFabricVersion));
  return std::nullopt;
}

/// From a process that listens and does not answer. It need not, as long as the kernel lets us take
/// what it has.
Result<FabricParts> take_from_silent(pid_t pid, const wire::Address& address, ForkLedger& ledger) {
  // So many may have called it in vain that it cannot be asked for its number either.
  if (pid == 0) pid = find_process_with(FabricDirectory::link_name(address));
  return take_parts(pid, address, ledger);
}

/// From a process that listens: asked for, or taken when it `is_silent`.
Result<FabricParts> parts_from(Caller& caller, const wire::Address& address, ForkLedger& ledger,
                               bool& is_silent) {
  if (caller.outcome() == Caller::Outcome::kReady) {
    auto parts = ask_parts(caller, address, ledger);
    if (parts || parts.error().condition != std::errc::timed_out) return parts;
  }
  is_silent = true;
  return take_from_silent(caller.pid(), address, ledger);
}

Round ask_all(const wire::Address& address, std::chrono::milliseconds patience,
              ForkLedger& ledger) {
  using Outcome = Caller::Outcome;
  Round round;
  std::set<pid_t> silent;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    const std::string name = slot_name(address, slot);
    // A stopped process is waited for once, whatever number of slots it holds.
    if (!silent.empty() && silent.contains(listener_of(name))) continue;
    Caller caller(name, patience);
    if (auto refused = refusal(caller, address)) {
      round.error = std::move(refused);
      return round;
    }
    if (caller.outcome() != Outcome::kReady && caller.outcome() != Outcome::kSilent) continue;
    bool is_silent = false;
    auto parts = parts_from(caller, address, ledger, is_silent);
    if (is_silent) silent.insert(caller.pid());
    if (parts) {
      round.parts.emplace(std::move(*parts));
      return round;
    }
    // Another process may hand over what is right.
    (is_silent ? round.obstacle : round.error) = std::move(parts).error();
  }
  return round;
}

Error in_use(const wire::Address& address, const std::optional<PortHolder>& holder,
             const std::optional<Error>& obstacle) {
  const std::string where =
      fmt::format("UDP port {} at {} is in use", wire::kRoceUdpPort, wire::to_string(address));
  if (obstacle)
    return {std::errc::address_in_use,
            fmt::format("{} by a process that does not answer (is it stopped?), and {}", where,
                        obstacle->message)};
  if (!holder) return {std::errc::address_in_use, where + " by somebody who cannot be seen"};
  return {std::errc::address_in_use,
          fmt::format("{} by {}; choose another address", where, describe(*holder))};
}

bool is_nonsense(const Error& error) { return error.condition == std::errc::bad_message; }

/// With the address's lock held: joins who came meanwhile, or makes the pool.
Result<FabricParts> join_or_create(const wire::Address& address, ForkLedger& ledger) {
  std::optional<PortHolder> holder;
  std::optional<Error> obstacle;
  auto patience = kFirstPatience;
  for (int i = 0; i < kLeaveAttempts; ++i) {
    Round round = ask_all(address, patience, ledger);
    if (round.parts) return std::move(*round.parts);
    if (round.error) {
      // Who is just leaving may break off in the middle of an answer.
      if (!is_nonsense(*round.error) || i + 1 == kLeaveAttempts)
        return std::unexpected(std::move(*round.error));
      pause();
      continue;
    }
    const auto free = check_exclusive(address);
    if (free) {
      auto directory = VERBENA_TRY(FabricDirectory::create(ledger, address));
      auto pool = VERBENA_TRY(create_pool(address));
      return FabricParts{.directory = std::move(directory), .pool = std::move(pool)};
    }
    if (free.error().condition != std::errc::address_in_use)
      return std::unexpected(std::move(free).error());
    // A process of ours may be just leaving; its sockets go a moment after its names. Who listens
    // and is silent, or is nobody of ours, will not go.
    holder = port_holder(address);
    obstacle = std::move(round.obstacle);
    if (obstacle && patience < kLastPatience) {
      patience *= 2;
      continue;
    }
    const bool leaving =
        !obstacle && (!holder || (holder->inode != 0 && holder->uid == sys::geteuid()));
    if (!leaving) break;
    pause();
  }
  return std::unexpected(in_use(address, holder, obstacle));
}

}  // namespace

Result<Fabric::Joined> Fabric::join(const wire::Address& address, SlotUse use,
                                    const Surroundings& surroundings) {
  ForkLedger& ledger = surroundings.ledger;
  // Once taken, it is held until the first slot's name is there for the next one to find.
  LedgerFd lock;
  Round round = ask_all(address, kFirstPatience, ledger);
  if (!round.parts) {
    if (round.error && !is_nonsense(*round.error)) return std::unexpected(std::move(*round.error));
    lock = LedgerFd(ledger, VERBENA_TRY(lock_address(address)));
    round.parts.emplace(VERBENA_TRY(join_or_create(address, ledger)));
  }
  auto fabric =
      std::make_shared<Fabric>(Token{}, address, surroundings, std::move(round.parts->directory),
                               std::move(round.parts->pool));
  VERBENA_TRY(fabric->open_reception());
  Slot slot = VERBENA_TRY(fabric->take_slot(use));
  fabric->look();  // who changed the port before the slot's name was there told nobody here
  if (!fabric->missing().empty()) {
    // Who adds a GID holds the lock until all whom it found have its sockets.
    if (!lock) lock = LedgerFd(ledger, VERBENA_TRY(lock_address(address)));
    fabric->fetch_missing();
  }
  return Joined{.fabric = std::move(fabric), .slot = std::move(slot)};
}

Fabric::Fabric(Token, const wire::Address& address, const Surroundings& surroundings,
               FabricDirectory directory, SocketPool pool)
    : address_(address),
      surroundings_(surroundings),
      directory_(std::move(directory)),
      state_(directory_.port().value_or(PortState::of(address))) {
  enter(address, std::move(pool));
}

Fabric::~Fabric() {
  if (reception_) surroundings_.watcher.unwatch(reception_->descriptor());
}

Result<void> Fabric::open_reception() {
  auto reception = VERBENA_TRY(Reception::create(surroundings_.ledger, *this));
  VERBENA_TRY(surroundings_.watcher.watch(reception->descriptor(),
                                          [raw = reception.get()] { raw->serve(); }));
  reception_ = std::move(reception);
  return {};
}

// --- Slots

Result<Fabric::Slot> Fabric::take_slot(SlotUse use) {
  const std::scoped_lock lock(slots_mutex_);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (!can_share(slot, use)) continue;
    if (auto box = open_box(slot, use)) return hold(slot, use, std::move(*box));
  }
  const std::size_t first = directory_.next_slot();
  for (std::size_t i = 0; i < kSlots; ++i) {
    const std::size_t slot = (first + i) % kSlots;
    if (slot == kGeneralSlot || is_mine(slot)) continue;
    auto box = try_take(slot, use);
    if (!box) continue;
    directory_.set_next_slot(slot + 1);
    return hold(slot, use, std::move(box));
  }
  return fail(std::errc::no_buffer_space,
              fmt::format("all {} places at {} are taken", kSlots - 1, wire::to_string(address_)));
}

bool Fabric::is_mine(std::size_t slot) const {
  const std::scoped_lock lock(pools_mutex_);
  return holdings_[slot].any();
}

/// With the slots' mutex held. Whether this process has the slot, for another use.
bool Fabric::can_share(std::size_t slot, SlotUse use) const {
  const std::scoped_lock lock(pools_mutex_);
  const Holding& holding = holdings_[slot];
  if (slot == kGeneralSlot || !holding.any()) return false;
  // Packets for queue pairs that are gone may still be under way.
  return use == SlotUse::kGeneral ? !holding.general : !holding.was_read;
}

Result<std::unique_ptr<StrayBox>> Fabric::open_box(std::size_t slot, SlotUse use) {
  return StrayBox::open(address_, use, static_cast<std::uint8_t>(slot), directory_,
                        surroundings_.ledger);
}

/// With the slots' mutex held. Nothing when the slot cannot be had.
std::unique_ptr<StrayBox> Fabric::try_take(std::size_t slot, SlotUse use) {
  if (!directory_.lock(slot)) return nullptr;
  // The names may outlive their process in a forked child that does not know of us: leave the slot.
  auto listener = listen_at(slot_name(address_, slot));
  auto box = open_box(slot, use);
  if (!listener || !box || !reception_->open(slot, std::move(*listener))) {
    directory_.unlock(slot);
    return nullptr;
  }
  directory_.begin_count(slot);
  const std::scoped_lock lock(pools_mutex_);
  std::array<int, kSlots> sockets{};
  std::ranges::transform(pools_.front()->sockets, sockets.begin(), &LedgerFd::get);
  directory_.note_sockets(slot, sockets);
  return std::move(*box);
}

/// With the slots' mutex held, a slot that is this process's.
Fabric::Slot Fabric::hold(std::size_t slot, SlotUse use, std::unique_ptr<StrayBox> box) {
  const bool general = use == SlotUse::kGeneral;
  {
    const std::scoped_lock lock(pools_mutex_);
    Holding& holding = holdings_[slot];
    (general ? holding.general : holding.reads) = true;
    if (!general) {
      holding.was_read = true;
      for (const auto& pool : pools_) drain(pool->sockets[slot].get());
    }
    const std::size_t read = general ? kGeneralSlot : slot;
    holdings_[read].reads = true;
    for (const auto& pool : pools_)
      link::set_receive_buffer(pool->sockets[read].get(), kReceiveBuffer);
  }
  return {.number = static_cast<std::uint8_t>(slot),
          .counters = &directory_.counters(slot, use),
          .lease = std::shared_ptr<const void>(
              this,
              [self = shared_from_this(), slot, use](const void*) { self->give_back(slot, use); }),
          .box = std::move(box)};
}

void Fabric::give_back(std::size_t slot, SlotUse use) {
  if (surroundings_.ledger.forked()) return;
  const std::scoped_lock lock(slots_mutex_);
  {
    const std::scoped_lock pools_lock(pools_mutex_);
    Holding& holding = holdings_[slot];
    (use == SlotUse::kGeneral ? holding.general : holding.reads) = false;
    if (!holding.reads) {
      for (const auto& pool : pools_) link::set_receive_buffer(pool->sockets[slot].get(), 0);
    }
    if (holding.any()) return;
    holding = {};
  }
  reception_->close(slot);
  directory_.unlock(slot);
}

// --- The ports of rdma_cm

Result<void> Fabric::with_ports(const PortsWork& work) {
  for (int i = 0; !try_with_ports(work); ++i) {
    if (i == kPortsAttempts)
      return fail(
          std::errc::timed_out,
          fmt::format("a process has had the ports at {} for {} s: is it stopped?",
                      wire::to_string(address_), kPortsAttempts * kPause.tv_nsec / 1'000'000'000));
    pause();
  }
  return {};
}

bool Fabric::try_with_ports(const PortsWork& work) {
  const std::scoped_lock lock(ports_mutex_);
  if (!directory_.lock_ports()) return false;
  const std::unique_ptr<FabricDirectory, void (*)(FabricDirectory*)> locked(
      &directory_, [](FabricDirectory* directory) { directory->unlock_ports(); });
  work(directory_.ports());
  return true;
}

void Fabric::look_at_ports(const PortsWork& look) {
  if (try_with_ports(look)) return;
  const std::scoped_lock lock(ports_mutex_);
  look(directory_.ports());
}

bool Fabric::is_there(Tenant tenant) const {
  const std::size_t slot = slot_of(tenant);
  if (tenant != tenant_of(slot)) return false;
  return is_mine(slot) || directory_.holder(slot).has_value();
}

// --- The port

PortState Fabric::port() const {
  const std::scoped_lock lock(pools_mutex_);
  PortState state = state_;
  for (wire::Address& gid : state.gids) {
    if (!find_pool(gid)) gid = {};
  }
  state.gids[0] = address_;
  return state;
}

std::vector<link::AddressSwitch::Route> Fabric::routes(std::size_t slot) const {
  const std::scoped_lock lock(pools_mutex_);
  std::vector<link::AddressSwitch::Route> routes;
  routes.reserve(pools_.size());
  for (const auto& pool : pools_)
    routes.push_back({.address = pool->gid, .socket = pool->sockets[slot].get(), .keep = pool});
  return routes;
}

/// With the pools' mutex held.
std::shared_ptr<const Fabric::Pool> Fabric::find_pool(const wire::Address& gid) const {
  const auto found =
      std::ranges::find_if(pools_, [&](const auto& pool) { return pool->gid == gid; });
  return found == pools_.end() ? nullptr : *found;
}

void Fabric::enter(const wire::Address& gid, SocketPool sockets) {
  auto pool = std::make_shared<Pool>();
  pool->gid = gid;
  const std::scoped_lock lock(pools_mutex_);
  if (find_pool(gid)) return;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (holdings_[slot].reads) link::set_receive_buffer(sockets[slot].get(), kReceiveBuffer);
    pool->sockets[slot] = LedgerFd(surroundings_.ledger, std::move(sockets[slot]));
  }
  pools_.push_back(std::move(pool));
}

/// GIDs in the table for which this process has no sockets.
std::vector<wire::Address> Fabric::missing() const {
  const std::scoped_lock lock(pools_mutex_);
  std::vector<wire::Address> missing;
  for (const wire::Address& gid : std::span(state_.gids).subspan(1)) {
    if (!gid.is_zero() && !find_pool(gid)) missing.push_back(gid);
  }
  return missing;
}

void Fabric::fetch_missing() {
  std::vector<wire::Address> left = missing();
  for (std::size_t slot = 0; slot < kSlots && !left.empty(); ++slot) {
    Caller caller(slot_name(address_, slot), kFirstPatience);
    if (caller.outcome() != Caller::Outcome::kReady) continue;
    for (const wire::Address& gid : left) {
      auto pool = caller.pool(gid);
      if (pool) enter(gid, std::move(*pool));
    }
    left = missing();
  }
  for (const wire::Address& gid : left)
    log(LogLevel::kWarning, "nobody at {} hands over the sockets of the GID {}: it is left out",
        wire::to_string(address_), wire::to_string(gid));
}

// --- What others ask

bool Fabric::pool(const wire::Address& gid, std::array<int, kSlots>& sockets) {
  const std::scoped_lock lock(pools_mutex_);
  const auto found = find_pool(gid);
  if (!found) return false;
  std::ranges::transform(found->sockets, sockets.begin(), &LedgerFd::get);
  return true;
}

Result<void> Fabric::add_pool(const wire::Address& gid, SocketPool pool) {
  if (!is_pool(pool, gid)) return fail(std::errc::bad_message);
  look();
  {
    const std::scoped_lock lock(pools_mutex_);
    if (!index_of(state_.gids, gid)) return fail(std::errc::address_not_available);
  }
  enter(gid, std::move(pool));
  surroundings_.tenants.port_changed(*this);
  return {};
}

void Fabric::look() {
  {
    const std::scoped_lock lock(pools_mutex_);
    const auto state = directory_.port();
    if (!state || *state == state_) return;
    state_ = *state;
    std::erase_if(pools_, [this](const auto& pool) {
      return pool->gid != address_ && !index_of(state_.gids, pool->gid);
    });
  }
  surroundings_.tenants.port_changed(*this);
}

bool is_available(const wire::Address& address) {
  // Not by binding: somebody who is just setting the address up would find it taken.
  if (!port_holder(address)) return true;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (listener_of(slot_name(address, slot)) != 0) return true;
  }
  return false;
}

bool is_deserted(const wire::Address& address, std::size_t slot) {
  const auto is_local = [&] {
    return link::open_udp_socket(address, 0, link::Sharing::kExclusive).has_value();
  };
  if (listener_of(slot_name(address, slot)) != 0 || !is_local()) return false;
  for (std::size_t other = 0; other < kSlots; ++other) {
    if (listener_of(slot_name(address, other)) != 0) return true;
  }
  // Who holds the port without a name there may have the address as a further GID.
  return !port_holder(address);
}

}  // namespace verbena::nic
