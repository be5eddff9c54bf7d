// SPDX-License-Identifier: Apache-2.0
#include "compat/memory_check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>

namespace verbena::compat {
namespace {

struct Range {
  std::uintptr_t first = 0;
  std::uintptr_t last = 0;  ///< behind it
};

/// Whether mappings with the access lie behind every byte of the range: what the kernel's list of
/// them says.
bool is_mapped(Range range, bool writable) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             &std::fclose);
  if (maps == nullptr) return true;  // nobody to ask
  char line[512];
  while (range.first < range.last && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    Range mapping;
    char access[5] = {};
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &mapping.first, &mapping.last, access) !=
        3)
      continue;
    if (mapping.last <= range.first) continue;
    if (mapping.first > range.first || access[0] != 'r' || (writable && access[1] != 'w'))
      return false;
    range.first = mapping.last;
  }
  return range.first >= range.last;
}

}  // namespace

Result<void> populate(void* address, std::size_t length, bool writable) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const Range range{.first = begin & ~(page - 1), .last = begin + length};
  const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  while (::madvise(reinterpret_cast<void*>(range.first), range.last - range.first, advice) != 0) {
    if (errno == EINTR) continue;
    // EINVAL: the mapping does not allow it, or is of a kind that is never populated (a device's),
    // or the kernel is older than 5.14 and does not know the advice.
    if (errno == EINVAL && is_mapped(range, writable)) return {};
    return fail(std::errc::bad_address,
                "the memory is not mapped, or not with the access that the region asks for");
  }
  return {};
}

}  // namespace verbena::compat
