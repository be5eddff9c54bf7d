// SPDX-License-Identifier: Apache-2.0
#include "nic/fabric_visit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "nic/interface_fit.h"
#include "nic/port_holder.h"

namespace verbena::nic {
namespace {

constexpr std::chrono::milliseconds kPatience{50};
/// Where it must be that one, which may wait for a busy processor.
constexpr std::chrono::milliseconds kLongPatience{1000};
/// More queue pairs than a slot has numbers are not believed.
constexpr std::size_t kMostReplies = (std::size_t{1} << link::kSlotShift) / kReportsAtOnce;

Error nobody(const wire::Address& address) {
  const std::string where = wire::to_string(address);
  const auto holder = port_holder(address);
  if (!holder || holder->uid == sys::geteuid())
    return {std::errc::no_such_device,
            fmt::format("no NIC runs at {}: start a program with `verbena run`, or name another "
                        "address with --addr",
                        where)};
  return {std::errc::no_such_device,
          fmt::format("no NIC of yours runs at {}: it belongs to {}", where, describe(*holder))};
}

}  // namespace

/// Any process at the address will do, so a short wait for each is enough, unless all are busy.
Result<FabricVisit> FabricVisit::begin(const wire::Address& address) {
  auto quick = begin(address, kPatience);
  if (quick || quick.error().condition != std::errc::timed_out) return quick;
  return begin(address, kLongPatience);
}

Result<FabricVisit> FabricVisit::begin(const wire::Address& address,
                                       std::chrono::milliseconds patience) {
  auto ledger = std::make_unique<ForkLedger>();
  std::set<pid_t> silent;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    const std::string name = slot_name(address, slot);
    if (!silent.empty() && silent.contains(listener_of(name))) continue;
    Caller caller(name, patience);
    if (caller.outcome() == Caller::Outcome::kSkew)
      return fail(std::errc::protocol_not_supported,
                  fmt::format("{} is used by {} with another version of Verbena",
                              wire::to_string(address), describe_process(caller.pid())));
    if (caller.outcome() == Caller::Outcome::kReady) {
      auto fd = caller.directory();
      if (fd) {
        auto directory = VERBENA_TRY(FabricDirectory::open(*ledger, std::move(*fd)));
        return FabricVisit(address, std::move(ledger), std::move(directory));
      }
    }
    if (caller.outcome() == Caller::Outcome::kSilent || caller.outcome() == Caller::Outcome::kReady)
      silent.insert(caller.pid());
  }
  if (silent.empty()) return std::unexpected(nobody(address));
  return fail(std::errc::timed_out,
              fmt::format("{} is at {} and does not answer: is it stopped?",
                          describe_process(*silent.begin()), wire::to_string(address)));
}

PortReport FabricVisit::port() const {
  // A state that somebody wrote over is as at first.
  return {.state = directory_.port().value_or(PortState::of(address_)),
          .counters = directory_.total()};
}

std::vector<FabricVisit::Tenant> FabricVisit::tenants() const {
  std::vector<Tenant> tenants;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    const auto pid = directory_.holder(slot);
    if (!pid) continue;
    auto tenant = std::ranges::find(tenants, *pid, &Tenant::pid);
    if (tenant == tenants.end()) tenant = tenants.insert(tenant, Tenant{.pid = *pid});
    tenant->slots.push_back(slot);
    engine::add(tenant->counters, directory_.counted(slot));
  }
  return tenants;
}

Result<std::vector<QueuePairReport>> FabricVisit::queue_pairs(const Tenant& tenant) const {
  Caller caller(slot_name(address_, tenant.slots.front()), kLongPatience);
  if (caller.outcome() != Caller::Outcome::kReady)
    return fail(std::errc::timed_out,
                fmt::format("{} does not answer: is it stopped?", describe_process(tenant.pid)));
  std::vector<QueuePairReport> all;
  for (std::size_t i = 0; i < kMostReplies; ++i) {
    const std::uint32_t above = all.empty() ? 0 : all.back().number;
    const auto some = VERBENA_TRY(caller.queue_pairs(above));
    if (some.empty()) break;
    if (some.front().number <= above || !std::ranges::is_sorted(some, {}, &QueuePairReport::number))
      return fail(std::errc::bad_message,
                  fmt::format("{} gives no sensible answer", describe_process(tenant.pid)));
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// --- Changes

/// Calls each process once. Returns why some were not reached.
template <typename Tell>
std::vector<Error> FabricVisit::tell_all(Tell&& tell) const {
  std::vector<Error> failures;
  for (const Tenant& tenant : tenants()) {
    Caller caller(slot_name(address_, tenant.slots.front()), kLongPatience);
    if (caller.outcome() == Caller::Outcome::kNobody) continue;  // it has just gone
    if (caller.outcome() != Caller::Outcome::kReady) {
      failures.emplace_back(std::errc::timed_out, fmt::format("{} does not answer: is it stopped?",
                                                              describe_process(tenant.pid)));
      continue;
    }
    if (const Result<void> told = tell(caller); !told) failures.push_back(told.error());
  }
  return failures;
}

Result<FabricVisit::Change> FabricVisit::set_up(bool up) {
  const sys::OwnedFd lock = VERBENA_TRY(lock_address(address_));
  PortState state = port().state;
  if (state.up && !up) ++state.downs;
  state.up = up;
  directory_.set_port(state);
  return Change{.failures = tell_all([](Caller& caller) { return caller.look(); })};
}

Result<FabricVisit::Change> FabricVisit::add_gid(const wire::Address& gid) {
  const sys::OwnedFd lock = VERBENA_TRY(lock_address(address_));
  PortState state = port().state;
  if (const auto index = index_of(state.gids, gid))
    return fail(std::errc::file_exists, fmt::format("{} is in the table already, at index {}",
                                                    wire::to_string(gid), *index));
  const auto free = std::ranges::find_if(state.gids, &wire::Address::is_zero);
  if (free == state.gids.end())
    return fail(std::errc::no_buffer_space,
                fmt::format("all {} entries of the GID table are in use", kGids));
  VERBENA_TRY(check_is_local(gid));
  if (const auto exclusive = check_exclusive(gid); !exclusive) {
    const auto holder = port_holder(gid);
    if (exclusive.error().condition != std::errc::address_in_use || !holder)
      return std::unexpected(exclusive.error());
    return fail(std::errc::address_in_use,
                fmt::format("UDP port {} at {} is in use by {}", wire::kRoceUdpPort,
                            wire::to_string(gid), describe(*holder)));
  }
  const SocketPool pool = VERBENA_TRY(create_pool(gid));
  *free = gid;
  directory_.set_port(state);
  return Change{.failures = tell_all([&](Caller& caller) { return caller.add_pool(gid, pool); }),
                .gid_index = static_cast<std::size_t>(free - state.gids.begin())};
}

Result<FabricVisit::Change> FabricVisit::delete_gid(const wire::Address& gid) {
  const sys::OwnedFd lock = VERBENA_TRY(lock_address(address_));
  PortState state = port().state;
  const auto index = index_of(state.gids, gid);
  if (!index)
    return fail(std::errc::invalid_argument,
                fmt::format("{} is not in the GID table", wire::to_string(gid)));
  if (*index == 0)
    return fail(std::errc::invalid_argument,
                fmt::format("{} is the NIC's own address and stays", wire::to_string(gid)));
  state.gids[*index] = {};
  directory_.set_port(state);
  return Change{.failures = tell_all([](Caller& caller) { return caller.look(); }),
                .gid_index = *index};
}

}  // namespace verbena::nic
