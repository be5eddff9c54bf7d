// SPDX-License-Identifier: Apache-2.0
#include "nic/device_memory.h"

#include <sys/mman.h>

#include <cstring>

namespace verbena::nic {
namespace {

constexpr std::uint32_t kLogPage = 12;

Result<void> check_copy(std::uint64_t size, std::uint64_t offset, std::uint64_t length) {
  if (offset % DeviceMemory::kUnit != 0 || length % DeviceMemory::kUnit != 0)
    return fail(std::errc::invalid_argument, "device memory is copied in units of 4 bytes");
  if (offset > size || length > size - offset)
    return fail(std::errc::bad_address, "beyond the end of the device memory");
  return {};
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  ::munmap(bytes_.data(), bytes_.size());
  pool_.taken_.fetch_sub(bytes_.size(), std::memory_order_relaxed);
}

Result<void> DeviceMemory::copy_in(std::uint64_t offset, const void* from, std::uint64_t length) {
  VERBENA_TRY(check_copy(bytes_.size(), offset, length));
  if (length != 0) std::memcpy(bytes_.data() + offset, from, length);
  return {};
}

Result<void> DeviceMemory::copy_out(void* to, std::uint64_t offset, std::uint64_t length) const {
  VERBENA_TRY(check_copy(bytes_.size(), offset, length));
  if (length != 0) std::memcpy(to, bytes_.data() + offset, length);
  return {};
}

Result<Bytes> DeviceMemory::part(std::uint64_t offset, std::uint64_t length) const {
  if (offset > bytes_.size() || length > bytes_.size() - offset)
    return fail(std::errc::invalid_argument, "the device memory does not have these bytes");
  return bytes_.subspan(offset, length);
}

Result<std::shared_ptr<DeviceMemory>> DeviceMemoryPool::allocate(std::uint64_t length,
                                                                 std::uint32_t log_alignment) {
  if (length == 0 || length > size_)
    return fail(std::errc::invalid_argument, "the length is zero or above max_dm_size");
  if (log_alignment > kLogPage)
    return fail(std::errc::invalid_argument, "device memory is aligned to a page at most");
  if (taken_.fetch_add(length, std::memory_order_relaxed) > size_ - length) {
    taken_.fetch_sub(length, std::memory_order_relaxed);
    return fail(std::errc::not_enough_memory, "too little device memory is left");
  }
  // Shared with forked children, as the memory of a card is.
  void* const mapped =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    taken_.fetch_sub(length, std::memory_order_relaxed);
    return fail(std::errc::not_enough_memory, "no memory for device memory");
  }
  const std::uint32_t handle = next_handle_.fetch_add(1, std::memory_order_relaxed);
  return std::shared_ptr<DeviceMemory>(
      new DeviceMemory(*this, Bytes(static_cast<std::byte*>(mapped), length), handle));
}

}  // namespace verbena::nic
