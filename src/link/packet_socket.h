// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "base/result.h"
#include "base/sys.h"

namespace verbena::link {

using MacAddress = std::array<std::byte, 6>;

/// A packet socket (packet(7)) that hears whole frames of an Ethernet: what comes in there, and
/// what others of this machine send there. Errors, each with a sentence that says what to do:
/// no_such_device, invalid_argument for an interface that is no Ethernet, operation_not_permitted
/// without CAP_NET_RAW, and what else the kernel says.
[[nodiscard]] Result<sys::OwnedFd> open_packet_socket(const std::string& interface);

/// The interface's own address.
[[nodiscard]] Result<MacAddress> mac_of_packet_socket(int fd);

}  // namespace verbena::link
