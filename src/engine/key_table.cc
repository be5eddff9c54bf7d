// SPDX-License-Identifier: Apache-2.0
#include "engine/key_table.h"

#include <algorithm>
#include <bit>

#include "engine/mutants.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kGenerationBits = 8;

/// Whether [address, address + length) lies in the region; no sum that could wrap around is formed.
bool covers(const MemoryKey& key, std::uint64_t address, std::uint64_t length) {
  if (mutant(Mutant::kRangeCheckWraps))
    return address >= key.address && address + length <= key.address + key.length;
  if (mutant(Mutant::kRangeCheckOffByOne) && address >= key.address)
    return length <= key.length - (address - key.address) + 1;
  if (address < key.address) return false;
  const std::uint64_t offset = address - key.address;
  return offset <= key.length && length <= key.length - offset;
}

}  // namespace

KeyTable::KeyTable(std::uint32_t capacity, std::uint64_t seed)
    : capacity_(std::bit_ceil(std::max(capacity, 2u))),
      entries_(std::make_unique<Entry[]>(capacity_)) {
  const auto start = static_cast<std::uint32_t>(seed % capacity_);
  for (std::uint32_t i = 0; i < capacity_; ++i) free_.push_back((start + i) % capacity_);
  for (std::uint32_t i = 0; i < capacity_; ++i) {
    entries_[i].generation = static_cast<std::uint8_t>((seed >> 32) + std::uint64_t{i} * 37);
  }
}

KeyTable::~KeyTable() = default;

Result<std::uint32_t> KeyTable::insert(const MemoryKey& key) {
  if (free_.empty()) return fail(std::errc::not_enough_memory, "all memory keys are in use");
  const std::uint32_t index = free_.front();
  free_.pop_front();
  Entry& entry = entries_[index];
  entry.key = key;
  ++entry.generation;
  std::uint32_t number = (index << kGenerationBits) | entry.generation;
  // 0 marks an entry that is not in use, and programs take a zero key for "none".
  if (number == 0) number = ++entry.generation;
  entry.number.store(number, std::memory_order_release);
  ++size_;
  return number;
}

bool KeyTable::erase(std::uint32_t key) {
  Entry& entry = entry_of(key);
  if (key == 0 || entry.number.load(std::memory_order_relaxed) != key) return false;
  entry.number.store(0, std::memory_order_release);
  --size_;
  return true;
}

void KeyTable::reclaim(std::uint32_t key) { free_.push_back((key >> kGenerationBits) % capacity_); }

std::expected<Bytes, MemoryError> KeyTable::lookup(std::uint32_t key, std::uint64_t address,
                                                   std::uint64_t length, std::uint32_t access,
                                                   std::uint32_t pd) const {
  const Entry& entry = entry_of(key);
  const std::uint32_t number = entry.number.load(std::memory_order_acquire);
  if (mutant(Mutant::kGenerationIgnored) ? number == 0 : key == 0 || number != key) {
    return std::unexpected(MemoryError::kUnknownKey);
  }
  const MemoryKey& found = entry.key;
  if (found.pd != pd && !mutant(Mutant::kPdIgnored))
    return std::unexpected(MemoryError::kProtectionDomain);
  if ((found.access & access) != access && !mutant(Mutant::kAccessIgnored)) {
    return std::unexpected(MemoryError::kAccess);
  }
  if (!covers(found, address, length)) return std::unexpected(MemoryError::kRange);
  return Bytes(found.base + (address - found.address), length);
}

std::expected<void, MemoryError> KeyTable::invalidate(std::uint32_t key, std::uint32_t pd,
                                                      std::uint32_t) {
  Entry& entry = entry_of(key);
  if (key == 0 || entry.number.load(std::memory_order_acquire) != key) {
    return std::unexpected(MemoryError::kUnknownKey);
  }
  if (entry.key.pd != pd) return std::unexpected(MemoryError::kProtectionDomain);
  if (!entry.key.window) return std::unexpected(MemoryError::kAccess);
  entry.number.store(0, std::memory_order_release);
  return {};
}

}  // namespace verbena::engine
