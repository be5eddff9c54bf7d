// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "verbena/types.h"

namespace verbena::verbs {

/// A device that the machine has, as the list says. A value: it holds nothing.
struct device_info {
  std::string name;        ///< "vrb0", "mlx5_0"
  std::uint64_t guid = 0;  ///< in the host's byte order
  ibv_node_type node = IBV_NODE_UNKNOWN;
  ibv_transport_type transport = IBV_TRANSPORT_UNKNOWN;
};

/// All devices, in the provider's order; none is no error. Source: ibv_get_device_list(3).
[[nodiscard]] Result<std::vector<device_info>> devices();

/// What a device can do. The C struct's fields, under its names. Source: ibv_query_device(3).
struct device_attributes : ibv_device_attr {};

/// What a port is like. Source: ibv_query_port(3).
struct port_attributes : ibv_port_attr {
  [[nodiscard]] port_state status() const noexcept { return static_cast<port_state>(state); }
  [[nodiscard]] mtu greatest_mtu() const noexcept { return static_cast<mtu>(max_mtu); }
  [[nodiscard]] mtu current_mtu() const noexcept { return static_cast<mtu>(active_mtu); }
  [[nodiscard]] verbs::link_layer layer() const noexcept {
    return static_cast<verbs::link_layer>(ibv_port_attr::link_layer);
  }
};

}  // namespace verbena::verbs
