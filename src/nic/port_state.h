// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/counters.h"
#include "wire/address.h"

namespace verbena::nic {

/// Entries of a port's GID table.
inline constexpr std::size_t kGids = 16;

/// A port's GID table, all of one RoCE version: entry 0 is the NIC's address, empty entries are
/// zero.
using GidTable = std::array<wire::Address, kGids>;

/// The place of an address that is not zero.
[[nodiscard]] inline std::optional<std::size_t> index_of(const GidTable& gids,
                                                         const wire::Address& gid) {
  const auto found = std::ranges::find(gids, gid);
  if (gid.is_zero() || found == gids.end()) return std::nullopt;
  return static_cast<std::size_t>(found - gids.begin());
}

/// What `verbena port` and `verbena gid` change while NICs run.
struct PortState {
  bool up = true;
  std::uint32_t downs = 0;  ///< times that it went down
  GidTable gids{};

  [[nodiscard]] static PortState of(const wire::Address& address) {
    PortState state;
    state.gids[0] = address;
    return state;
  }
  bool operator==(const PortState&) const = default;
};

/// A port with what all processes at its address have counted, those that are gone included.
struct PortReport {
  PortState state{};
  engine::Counters counters{};
};

}  // namespace verbena::nic
