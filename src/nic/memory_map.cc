// SPDX-License-Identifier: Apache-2.0
#include "nic/memory_map.h"

#include <sys/sysmacros.h>

#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/sys.h"

namespace verbena::nic {
namespace {

/// Lines are shorter: a path has 4096 bytes at most.
constexpr std::size_t kBuffer = 8192;

/// Takes a number in base 16 or 10 and the sign behind it off the front of a line.
bool take(std::string_view& line, char sign, int base, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number, base);
  const auto size = static_cast<std::size_t>(end - line.data());
  if (error != std::errc() || size >= line.size() || *end != sign) return false;
  line.remove_prefix(size + 1);
  return true;
}

/// "55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0          [heap]"
std::optional<Mapping> parse(std::string_view line) {
  Mapping mapping;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t major = 0;
  std::uint64_t minor = 0;
  constexpr std::size_t kRights = 4;
  if (!take(line, '-', 16, begin) || !take(line, ' ', 16, end) || line.size() <= kRights)
    return std::nullopt;
  mapping.begin = begin;
  mapping.end = end;
  mapping.rights = line.substr(0, kRights);
  line.remove_prefix(kRights + 1);
  if (!take(line, ' ', 16, mapping.offset) || !take(line, ':', 16, major) ||
      !take(line, ' ', 16, minor) || !take(line, ' ', 10, mapping.inode))
    return std::nullopt;
  mapping.device = makedev(static_cast<unsigned>(major), static_cast<unsigned>(minor));
  const std::size_t name = line.find_first_not_of(' ');
  if (name != std::string_view::npos) mapping.name = line.substr(name);
  return mapping;
}

}  // namespace

bool detail::visit_mappings(VisitMapping call, void* visit) {
  const sys::OwnedFd file(sys::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  std::array<char, kBuffer> buffer;
  std::size_t held = 0;
  for (;;) {
    const ssize_t got = sys::read(file.get(), buffer.data() + held, buffer.size() - held);
    if (got <= 0) return got == 0 && held == 0;
    held += static_cast<std::size_t>(got);
    std::string_view text(buffer.data(), held);
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      const auto mapping = parse(text.substr(0, end));
      if (!mapping) return false;
      if (!call(visit, *mapping)) return true;
      text.remove_prefix(end + 1);
    }
    held = text.size();
    std::memmove(buffer.data(), text.data(), held);
  }
}

unsigned count_threads() {
  const sys::OwnedFd tasks(sys::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status{};
  constexpr unsigned kOwnNames = 2;  // "." and its entry above
  if (!tasks || sys::fstat(tasks.get(), &status) != 0 || status.st_nlink <= kOwnNames) return 0;
  return static_cast<unsigned>(status.st_nlink) - kOwnNames;
}

}  // namespace verbena::nic
