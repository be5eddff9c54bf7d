// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/sys.h"

/// Messages with descriptors between processes of one machine, over connected Unix sockets
/// (SOCK_SEQPACKET). Nothing here blocks.
namespace verbena::nic {

/// Descriptors that one message may carry: below the kernel's limit, SCM_MAX_FD.
inline constexpr std::size_t kMaxDescriptors = 64;

/// A SEQPACKET socket, not connected.
[[nodiscard]] sys::OwnedFd unix_socket();

/// False when the peer is gone or does not read; nothing was sent then.
[[nodiscard]] bool send_message(int socket, ConstBytes bytes,
                                std::span<const int> descriptors = {});

struct Received {
  std::size_t size = 0;  ///< 0 when the peer has hung up
  std::vector<sys::OwnedFd> descriptors{};
  bool descriptors_lost = false;  ///< this process has no room for all that came
};
/// The message that is there; nothing when there is none, or one that is longer than `to`.
[[nodiscard]] std::optional<Received> receive_message(int socket, Bytes to);

}  // namespace verbena::nic
