// SPDX-License-Identifier: Apache-2.0
#include "compat/cm_files.h"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <exception>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/sys.h"
#include "compat/device_table.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

// RDMA_USER_CM_ABI_VERSION in rdma/rdma_user_cm.h.
constexpr std::string_view kAbiVersion = "4\n";

// A number of /proc/misc, that is of a "misc" device (Linux,
// Documentation/admin-guide/devices.txt), whose highest minor number asks for another one to be
// chosen.
constexpr unsigned int kMiscMajor = 10;
constexpr unsigned int kNoMiscMinor = 255;

/// The beginning of a file, whatever stands before the C library's functions.
std::string text_of(const char* path) {
  std::array<char, 4096> text{};
  const sys::OwnedFd fd(sys::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t size = fd ? sys::read(fd.get(), text.data(), text.size()) : 0;
  return {text.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

/// The number that a text begins with, spaces before it left out.
std::optional<unsigned int> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  unsigned int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

/// From "10:58", as sysfs writes it.
std::optional<dev_t> number_in_sysfs() {
  const std::string text = text_of("/sys/class/misc/rdma_cm/dev");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto major = number_in(text);
  const auto minor = number_in(std::string_view(text).substr(colon + 1));
  if (!major || !minor) return std::nullopt;
  return makedev(*major, *minor);
}

/// From " 58 rdma_cm", a line of /proc/misc: containers have that where they lack sysfs.
std::optional<dev_t> number_in_proc() {
  const std::string text = "\n" + text_of("/proc/misc");
  const std::size_t name = text.find(" rdma_cm\n");
  if (name == std::string::npos) return std::nullopt;
  const auto minor = number_in(std::string_view(text).substr(text.rfind('\n', name) + 1));
  if (!minor) return std::nullopt;
  return makedev(kMiscMajor, *minor);
}

}  // namespace

dev_t cm_device_number() {
  if (const auto number = number_in_sysfs()) return *number;
  return number_in_proc().value_or(makedev(kMiscMajor, kNoMiscMinor));
}

std::vector<DeviceFile> cm_files() {
  const dev_t number = cm_device_number();
  const auto in_class = [](std::string_view name) { return fmt::format("{}/{}", kCmClass, name); };
  return {
      {.path = in_class("abi_version"), .content = std::string(kAbiVersion)},
      {.path = in_class("dev"), .content = fmt::format("{}:{}\n", major(number), minor(number))},
      {.path = std::string(kCmNode), .kind = DeviceFile::Kind::kLink, .content = "/dev/null"},
  };
}

namespace detail {

bool has_cm_node() noexcept {
  if (real::unredirected()) return false;
  const int before = errno;
  bool has = false;
  try {
    const auto ours = devices();
    has = ours && !ours->empty();
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, "cannot say whether there is rdma_cm: {}", error.what());
  }
  errno = before;
  return has;
}

}  // namespace detail

// All but the number and the rights is what /dev/null has.

int describe_cm_node(struct stat* to) {
  if (::syscall(SYS_newfstatat, AT_FDCWD, "/dev/null", to, 0) != 0) return -1;
  to->st_mode = S_IFCHR | 0666;
  to->st_rdev = cm_device_number();
  return 0;
}

int describe_cm_node(struct statx* to, unsigned int mask) {
  if (sys::statx(AT_FDCWD, "/dev/null", 0, mask, to) != 0) return -1;
  const dev_t number = cm_device_number();
  to->stx_mode = S_IFCHR | 0666;
  to->stx_rdev_major = major(number);
  to->stx_rdev_minor = minor(number);
  return 0;
}

}  // namespace verbena::compat
