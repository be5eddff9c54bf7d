// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// The files of our devices on disk, for programs that open them: a private folder (0700) of this
/// process, made when the first of them is asked for and removed when the process ends. A killed
/// process leaves its folder to the next one, which finds its lock free and removes it.
///
/// Real devices' entries stand beside ours as links.
namespace verbena::compat {

/// Room for a name that redirect() makes. Small, since some callers are signal handlers on small
/// stacks.
struct PathRoom {
  char text[512];
};

namespace detail {
[[nodiscard]] const char* redirect_device_path(const char* path, PathRoom& room) noexcept;

[[nodiscard]] inline bool begins_with(const char* text, const char* prefix) {
  while (*prefix != '\0' && *text == *prefix) {
    ++text;
    ++prefix;
  }
  return *prefix == '\0';
}
}  // namespace detail

/// What to open instead of `path`: a name in `room` when it is a device's, else `path` itself.
/// Leaves errno alone. For every other path it is a comparison and async-signal-safe; the first
/// name of ours makes the folder.
[[nodiscard]] inline const char* redirect(const char* path, PathRoom& room) noexcept {
  if (path == nullptr || path[0] != '/') return path;
  if (!detail::begins_with(path, "/sys/class/infiniband") &&
      !detail::begins_with(path, "/dev/infiniband") &&
      !detail::begins_with(path, "/sys/class/misc/rdma_cm"))
    return path;
  return detail::redirect_device_path(path, room);
}

/// Around a fork: the folder is not being made while the process is copied.
void lock_file_tree();
void unlock_file_tree();

}  // namespace verbena::compat
