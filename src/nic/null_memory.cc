// SPDX-License-Identifier: Apache-2.0
#include "nic/null_memory.h"

#include <sys/mman.h>

#include <utility>

#include "engine/key_table.h"

namespace verbena::nic {
namespace {

constexpr std::size_t kSize = NullMemory::kZeros + engine::kSinkSize;

}  // namespace

Result<NullMemory> NullMemory::create() {
  void* const mapped =
      ::mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return fail(std::errc::not_enough_memory, "no room for a null region");
  NullMemory made(static_cast<std::byte*>(mapped));
  if (::mprotect(made.sink(), engine::kSinkSize, PROT_READ | PROT_WRITE) != 0)
    return fail(std::errc::not_enough_memory, "no memory for a null region");
  return made;
}

NullMemory::NullMemory(NullMemory&& other) noexcept
    : zeros_(std::exchange(other.zeros_, nullptr)) {}

NullMemory::~NullMemory() {
  if (zeros_ != nullptr) ::munmap(zeros_, kSize);
}

}  // namespace verbena::nic
