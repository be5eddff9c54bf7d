// SPDX-License-Identifier: Apache-2.0
#include "compat/command_file.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace verbena::compat {
namespace {

constexpr std::array<char, 8> kMark{'v', 'e', 'r', 'b', 'e', 'n', 'a', '\n'};

}  // namespace

Result<sys::OwnedFd> make_command_file() {
  sys::OwnedFd fd = sys::move_high(sys::OwnedFd(sys::memfd_create("verbena-device", MFD_CLOEXEC)));
  if (!fd || sys::write(fd.get(), kMark.data(), kMark.size()) != ssize_t{kMark.size()})
    return fail(static_cast<std::errc>(errno), "no descriptor for the device can be made");
  return fd;
}

std::optional<FileIdentity> command_file(int fd) {
  struct stat about{};
  std::array<char, kMark.size()> mark{};
  if (::syscall(SYS_fstat, fd, &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  const long size = ::syscall(SYS_pread64, fd, mark.data(), mark.size(), 0L);
  if (size != long{kMark.size()} || mark != kMark) return std::nullopt;
  return FileIdentity{.device = about.st_dev, .number = about.st_ino};
}

}  // namespace verbena::compat
