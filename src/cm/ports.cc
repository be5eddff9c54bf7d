// SPDX-License-Identifier: Apache-2.0
#include "cm/ports.h"

#include <fmt/format.h>

#include <bitset>

namespace verbena::cm {
namespace {

constexpr std::uint32_t kEphemeral = PortTable::kLastEphemeral - PortTable::kFirstEphemeral + 1;

Families families(const PortEntry& entry) {
  if (entry.address.is_zero()) return entry.families;
  return entry.address.is_ipv4() ? Families::kIpv4 : Families::kIpv6;
}

bool apart(const PortEntry& one, const PortEntry& other) {
  const Families mine = families(one);
  const Families theirs = families(other);
  return mine != Families::kBoth && theirs != Families::kBoth && mine != theirs;
}

bool takes(const PortEntry& entry, const wire::Address& address) {
  if (!entry.address.is_zero()) return entry.address == address;
  return entry.families == Families::kBoth ||
         (entry.families == Families::kIpv4) == address.is_ipv4();
}

}  // namespace

Result<void> PortTable::check(const PortEntry& wanted, const PortEntry* self,
                              bool may_share) const {
  for (const PortEntry& entry : entries_) {
    if (&entry == self || entry.space != wanted.space || entry.port != wanted.port) continue;
    if (may_share && wanted.reuse != 0 && entry.reuse != 0 && entry.listening == 0) continue;
    if (apart(wanted, entry)) continue;
    if (wanted.address.is_zero() || entry.address.is_zero()) {
      return fail(std::errc::address_not_available,
                  fmt::format("port {} is bound for any address", wanted.port));
    }
    if (wanted.address == entry.address)
      return fail(std::errc::address_in_use, fmt::format("port {} is in use", wanted.port));
  }
  return {};
}

/// The first free one from a random one on.
Result<std::uint16_t> PortTable::free_port(std::uint16_t space, Random& random) const {
  std::bitset<kEphemeral> used;
  for (const PortEntry& entry : entries_) {
    const std::size_t at = entry.port - std::size_t{kFirstEphemeral};
    if (entry.space == space && at < used.size()) used[at] = true;
  }
  const auto first = static_cast<std::uint32_t>(random.below(kEphemeral));
  for (std::uint32_t i = 0; i < kEphemeral; ++i) {
    const std::uint32_t at = (first + i) % kEphemeral;
    if (!used[at]) return static_cast<std::uint16_t>(kFirstEphemeral + at);
  }
  return fail(std::errc::address_not_available, "all ephemeral ports are in use");
}

Result<std::size_t> PortTable::bind(const PortEntry& wanted, Random& random) {
  PortEntry entry = wanted;
  if (entry.port == 0) {
    entry.port = VERBENA_TRY(free_port(entry.space, random));
  } else if (const auto checked = check(entry, nullptr, true); !checked) {
    return std::unexpected(checked.error());
  }
  for (std::size_t place = 0; place < entries_.size(); ++place) {
    if (entries_[place].space != 0) continue;
    entries_[place] = entry;
    return place;
  }
  return fail(std::errc::not_enough_memory, "as many ports are bound as may be");
}

Result<void> PortTable::listen(std::size_t place) {
  PortEntry& entry = entries_[place];
  if (auto checked = check(entry, &entry, false); !checked) return checked;
  entry.listening = 1;
  return {};
}

void PortTable::release_owner(std::uint32_t owner) {
  for (PortEntry& entry : entries_) {
    if (entry.space != 0 && entry.owner == owner) entry = {};
  }
}

std::optional<std::uint32_t> PortTable::listener(
    wire::PortSpace space, std::uint16_t port, const wire::Address& address,
    const std::function<bool(std::uint32_t owner)>& is_there) const {
  std::optional<std::uint32_t> any;
  for (const PortEntry& shared : entries_) {
    if (shared.space != static_cast<std::uint16_t>(space) || shared.port != port) continue;
    const PortEntry entry = shared;  // which another process may be changing
    if (entry.listening == 0 || !takes(entry, address) || !is_there(entry.owner)) continue;
    if (!entry.address.is_zero()) return entry.owner;
    any = entry.owner;
  }
  return any;
}

}  // namespace verbena::cm
