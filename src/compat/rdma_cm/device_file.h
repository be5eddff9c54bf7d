// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/result.h"

/// The character device /dev/infiniband/rdma_cm, as `rdma/rdma_user_cm.h` describes it and an
/// unmodified librdmacm uses it. Nothing of it is in the kernel: what is written to it is answered
/// here.
///
/// Threads: all calls from any thread. A forked child's parent's descriptors are dead in it.
namespace verbena::compat {

/// Opens the rdma_cm device: a descriptor of an eventfd that is readable while events wait. `flags`
/// as open(2)'s: O_CLOEXEC, O_NONBLOCK. What open(2) would say on errors.
[[nodiscard]] Result<int> open_rdma_cm(int flags);
/// Whether the descriptor is one of those. Async-signal-safe, cheap when none is open.
[[nodiscard]] bool is_rdma_cm(int fd);
/// What write(2) does on one; -1 with errno.
[[nodiscard]] ssize_t write_rdma_cm(int fd, const void* data, std::size_t size);
/// `duplicate` was made of one of those (dup(2)): it is one of them, for the same opening.
/// too_many_files_open for a number that is too high.
[[nodiscard]] Result<void> share_rdma_cm(int fd, int duplicate);
/// The program closes it, or puts another file in its place: with the last descriptor of an opening
/// its ids are destroyed. The descriptor itself is left for the caller to close.
void close_rdma_cm(int fd);
/// Whether the program has an id for datagrams (RDMA_PS_UDP) that is bound to a device.
[[nodiscard]] bool has_datagram_ids();

}  // namespace verbena::compat
