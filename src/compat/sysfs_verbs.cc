// SPDX-License-Identifier: Apache-2.0
// ibv_read_sysfs_file and ibv_get_sysfs_path, which ibv_devinfo, librdmacm and pyverbs import.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "compat/abi.h"
#include "compat/device_files.h"

namespace verbena::compat {
namespace {

/// Copies a text without its last newline and ends it, as far as it fits. Returns its length.
int put_text(std::string_view text, char* to, std::size_t size) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (size == 0) return 0;
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
  return static_cast<int>(length);
}

int read_file(const std::string& path, char* to, std::size_t size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t got = ::read(fd, to, size);
  ::close(fd);
  if (got < 0) return -1;
  const std::string text(to, static_cast<std::size_t>(got));
  return put_text(text, to, size);
}

}  // namespace

VERBENA_EXPORT const char* ibv_get_sysfs_path(void) { return "/sys"; }

VERBENA_EXPORT int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  try {
    const std::string path = std::string(dir) + "/" + file;
    if (const auto ours = read_device_file(path)) return put_text(*ours, buf, size);
    return read_file(path, buf, size);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

}  // namespace verbena::compat
