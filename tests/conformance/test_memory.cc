// SPDX-License-Identifier: Apache-2.0
#include "conformance/test_memory.h"

#include <algorithm>

namespace verbena::conformance {

using engine::MemoryError;

Bytes TestMemory::Region::bytes() { return Bytes(storage).subspan(offset, length); }

TestMemory::Region& TestMemory::add(std::uint32_t key, std::uint64_t address, std::size_t length,
                                    std::uint32_t access) {
  Region& region = storage_.emplace_back();
  region.key = key;
  region.address = address;
  region.access = access;
  region.length = length;
  // The bytes are aligned as the addresses are, which atomics need.
  region.offset = kGuard + address % 64;
  region.storage.assign(region.offset + length + kGuard, kGuardByte);
  std::ranges::fill(region.bytes(), std::byte{0});
  regions_[key] = &region;
  return region;
}

void TestMemory::add_window(std::uint32_t key, std::uint32_t region_key, std::uint64_t address,
                            std::size_t length, std::uint32_t access) {
  windows_[key] = {region_key, address, length, access};
}

bool TestMemory::guards_intact() const {
  const auto guard = [](std::byte byte) { return byte == kGuardByte; };
  return std::ranges::all_of(storage_, [&](const Region& region) {
    const ConstBytes all(region.storage);
    return std::ranges::all_of(all.first(region.offset), guard) &&
           std::ranges::all_of(all.subspan(region.offset + region.length), guard);
  });
}

std::expected<Bytes, MemoryError> TestMemory::lookup(std::uint32_t key, std::uint64_t address,
                                                     std::uint64_t length, std::uint32_t access,
                                                     std::uint32_t pd) const {
  if (const auto window = windows_.find(key); window != windows_.end()) {
    const Window& part = window->second;
    if ((part.access & access) != access) return std::unexpected(MemoryError::kAccess);
    if (address < part.address || length > part.length ||
        address - part.address > part.length - length) {
      return std::unexpected(MemoryError::kRange);
    }
    return lookup(part.region_key, address, length, 0, pd);
  }
  const auto found = regions_.find(key);
  if (found == regions_.end()) return std::unexpected(MemoryError::kUnknownKey);
  Region& region = *found->second;
  if (pd != kPd) return std::unexpected(MemoryError::kProtectionDomain);
  if ((region.access & access) != access) return std::unexpected(MemoryError::kAccess);
  if (address < region.address || length > region.length ||
      address - region.address > region.length - length) {
    return std::unexpected(MemoryError::kRange);
  }
  return region.bytes().subspan(address - region.address, length);
}

std::expected<void, MemoryError> TestMemory::check_remote(std::uint32_t key, std::uint32_t access,
                                                          const engine::KeyUser& user) const {
  const auto window = windows_.find(key);
  const auto found = regions_.find(key);
  if (window == windows_.end() && found == regions_.end())
    return std::unexpected(MemoryError::kUnknownKey);
  const std::uint64_t address =
      window != windows_.end() ? window->second.address : found->second->address;
  const auto first = lookup(key, address, 0, access, user.pd);
  if (!first) return std::unexpected(first.error());
  return {};
}

std::expected<void, MemoryError> TestMemory::invalidate(std::uint32_t key, const engine::KeyUser&) {
  if (windows_.erase(key) != 0) return {};
  return std::unexpected(regions_.contains(key) ? MemoryError::kAccess : MemoryError::kUnknownKey);
}

}  // namespace verbena::conformance
