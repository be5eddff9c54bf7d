// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace verbena::nic {

/// A name in the abstract name space of Unix sockets, which is the network namespace's and forgets
/// a name with its socket. In the form of the socket calls.
struct UnixName {
  sockaddr_un address{};
  socklen_t size = 0;

  /// Longer names than the kernel takes (107 bytes) are cut.
  explicit UnixName(const std::string& name) {
    // The first byte of an abstract name is 0, and there is no last one.
    const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), length);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

}  // namespace verbena::nic
