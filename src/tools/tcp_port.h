// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace verbena::tools {

/// A TCP port that nobody uses now, on IPv4 and IPv6.
[[nodiscard]] Result<std::uint16_t> free_tcp_port();

/// Whether somebody listens on the port. Looks it up in the kernel's list: a connection would use
/// up a server's only accept.
[[nodiscard]] bool is_listening(std::uint16_t port);

/// The same in the text of /proc/net/tcp or tcp6.
[[nodiscard]] bool lists_listener(std::string_view table, std::uint16_t port);

}  // namespace verbena::tools
