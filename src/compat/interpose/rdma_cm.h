// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "compat/rdma_cm/device_file.h"

/// Descriptors of rdma_cm's device among all those that the C library's functions are given. They
/// are the program's, which may close them and put others in their place.
namespace verbena::compat::interpose {

/// The highest that was ever opened; negative when none was, which is what all others pay for.
extern constinit std::atomic<int> highest_rdma_cm;

[[nodiscard]] inline bool is_opened_rdma_cm(int fd) {
  return fd <= highest_rdma_cm.load(std::memory_order_relaxed) && is_rdma_cm(fd);
}

/// What open(2) does on the device's node.
[[nodiscard]] int open_cm_node(int flags);

/// What dup(2) and its like return, that made `duplicate` of `fd`, or failed: -1 when a duplicate
/// of the device's cannot be known as one.
[[nodiscard]] int share_if_rdma_cm(int fd, int duplicate);

/// To be called before descriptors of the range are closed or replaced; both ends belong to it.
/// What a child of vfork(2) closes goes on in its parent.
void end_rdma_cm(unsigned int first, unsigned int last);
inline void end_rdma_cm(int fd) {
  if (fd >= 0) end_rdma_cm(static_cast<unsigned int>(fd), static_cast<unsigned int>(fd));
}

}  // namespace verbena::compat::interpose
