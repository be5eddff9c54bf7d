// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string_view>
#include <vector>

#include "compat/device_files.h"
#include "compat/file_tree.h"

/// The files by which a program finds the device that it talks to the connection manager by
/// (`rdma_cm/device_file.h`). librdmacm opens the node and wants a character device; when it has
/// learnt the device's number from the kernel's netlink, it wants that number too.
namespace verbena::compat {

inline constexpr std::string_view kCmNode = "/dev/infiniband/rdma_cm";
inline constexpr std::string_view kCmClass = "/sys/class/misc/rdma_cm";

/// The number of the kernel's own device when it has one, else a number of the same kind that the
/// kernel gives to none. Asked anew each time, since the kernel's module may be loaded meanwhile.
[[nodiscard]] dev_t cm_device_number();

/// The node and what stands in sysfs about it.
[[nodiscard]] std::vector<DeviceFile> cm_files();

namespace detail {
[[nodiscard]] bool has_cm_node() noexcept;
}

/// Whether a program that names `path` means our device. Leaves errno alone.
[[nodiscard]] inline bool is_cm_node(const char* path) noexcept {
  return path != nullptr && path[0] == '/' && kCmNode == path && detail::has_cm_node();
}

/// Fills in what the kernel would say of the node, or of a descriptor of it. -1 with errno.
int describe_cm_node(struct stat* to);
int describe_cm_node(struct statx* to, unsigned int mask);

}  // namespace verbena::compat
