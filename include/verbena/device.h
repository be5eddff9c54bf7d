// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verbena/types.h"

namespace verbena::verbs {

/// A device that the machine has, as the list says. A value: it holds nothing.
struct device_info {
  std::string name;                                      ///< "vrb0", "mlx5_0"
  std::uint64_t guid = 0;                                ///< in the host's byte order
  ibv_node_type node = IBV_NODE_UNKNOWN;                 ///< a channel adapter, of RoCE too; …
  ibv_transport_type transport = IBV_TRANSPORT_UNKNOWN;  ///< InfiniBand, of RoCE too; iWARP, …
};

/// All devices, in the provider's order; none is no error. Source: ibv_get_device_list(3).
[[nodiscard]] Result<std::vector<device_info>> devices();

/// The row of the port that a peer elsewhere can most likely reach: what `context::routable_gid`
/// chooses by. Of equals the first; nothing where the port has no row.
[[nodiscard]] std::optional<gid_entry> most_routable(std::span<const gid_entry> table, port of);

/// What a device can do. The C struct's fields, under its names. Source: ibv_query_device(3).
struct device_attributes : ibv_device_attr {
  /// A version (1), then the fields as the C struct has them, each big-endian.
  static constexpr std::size_t wire_size = 229;
  using wire_form = std::array<std::byte, wire_size>;  ///< what is stored or sent

  [[nodiscard]] wire_form to_bytes() const noexcept;  ///< as `wire_size` describes them
  /// `not_supported` where another version wrote it; `invalid_argument` where it is not
  /// `wire_size` bytes, has a negative count or a value that its enumeration has not.
  [[nodiscard]] static Result<device_attributes> from_bytes(std::span<const std::byte> from);
};

/// What a port is like. Source: ibv_query_port(3).
struct port_attributes : ibv_port_attr {
  /// A version (1), then the fields as the C struct has them, each big-endian.
  static constexpr std::size_t wire_size = 51;
  using wire_form = std::array<std::byte, wire_size>;  ///< what is stored or sent

  /// Traffic goes only in `port_state::active`.
  [[nodiscard]] port_state status() const noexcept { return static_cast<port_state>(state); }
  /// Of the device.
  [[nodiscard]] mtu greatest_mtu() const noexcept { return static_cast<mtu>(max_mtu); }
  /// That a connection by this port can have at most.
  [[nodiscard]] mtu current_mtu() const noexcept { return static_cast<mtu>(active_mtu); }
  /// Ethernet: of RoCE, where each address needs a GID.
  [[nodiscard]] verbs::link_layer layer() const noexcept {
    return static_cast<verbs::link_layer>(ibv_port_attr::link_layer);
  }

  [[nodiscard]] wire_form to_bytes() const noexcept;  ///< as `wire_size` describes them
  /// As `device_attributes::from_bytes`.
  [[nodiscard]] static Result<port_attributes> from_bytes(std::span<const std::byte> from);
};

}  // namespace verbena::verbs
