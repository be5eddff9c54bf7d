// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "bench/support/figure.h"

namespace verbena::bench {

/// An IPv4 address and a port; text that is no address ends the process.
[[nodiscard]] inline sockaddr_in socket_address(const std::string& address, std::uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &result.sin_addr) != 1) {
    errno = EINVAL;
    give_up(address.c_str());
  }
  return result;
}

[[nodiscard]] inline const sockaddr* generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace verbena::bench
