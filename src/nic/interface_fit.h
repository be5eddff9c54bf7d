// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "nic/config.h"
#include "wire/address.h"

/// What a device takes over from the network interface that has its address.
namespace verbena::nic {

/// The largest path MTU whose packets, with every header that one with payload may have, fit into
/// an interface's MTU; 0 when none does. Both in bytes.
[[nodiscard]] std::uint32_t path_mtu_within(std::uint32_t interface_mtu, bool ipv4);

/// address_not_available when this machine has no such address, with a sentence that names those
/// that it has. All loopback addresses pass.
[[nodiscard]] Result<void> check_is_local(const wire::Address& address);

/// Fills in the interface of the configured address and lowers max_mtu to what fits into its MTU.
/// An address that no interface lists leaves everything as it is. message_size when the interface's
/// MTU is too small for any path MTU.
[[nodiscard]] Result<void> fit_to_interface(NicConfig& config);

}  // namespace verbena::nic
