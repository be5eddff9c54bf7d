// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/address.h"

/// The IP addresses of this machine, or of the network namespace that the process is in, and the
/// interfaces that have them. All calls ask the kernel at the call, from any thread.
namespace verbena::link {

struct LocalAddress {
  wire::Address address{};
  std::string interface{};
  std::uint32_t index = 0;  ///< the interface's
};

/// Each address of each interface that is up, in the kernel's order; empty when it cannot be asked.
[[nodiscard]] std::vector<LocalAddress> local_addresses();

/// The interface that an address is on: of 127.0.0.0/8 the one that has 127.0.0.1. Nothing when no
/// interface lists it, which does not mean that it cannot be bound (routes to a whole network).
[[nodiscard]] std::optional<LocalAddress> find_local(const wire::Address& address);

/// "10.0.0.1 (eth0), fe80::1 (eth0)": what to say to somebody who named another one.
[[nodiscard]] std::string describe_local_addresses();

/// The address that an interface's name stands for: its first IPv4 address, else its first IPv6
/// address, a link-local one only when there is no other. "eth0/4" and "eth0/6" take one of that
/// family only. Errors, with a sentence that names what there is: no_such_device,
/// address_not_available.
[[nodiscard]] Result<wire::Address> address_of_interface(std::string_view name);

/// What an interface's packets may measure in bytes, IP header included.
[[nodiscard]] Result<std::uint32_t> interface_mtu(const std::string& interface);

}  // namespace verbena::link
