// SPDX-License-Identifier: Apache-2.0
#include "engine/key_table.h"

#include <algorithm>
#include <bit>

#include "engine/mutants.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kGenerationBits = 8;
constexpr std::uint32_t kRemoteRights = kRemoteRead | kRemoteWrite | kRemoteAtomic;

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

/// Where a byte of a region is. An implicit on-demand region begins where no object is, so that no
/// pointer may be counted from there.
std::byte* byte_at(const MemoryKey& key, std::uint64_t address) {
  const auto base = reinterpret_cast<std::uintptr_t>(key.base);
  return reinterpret_cast<std::byte*>(base + (address - key.address));  // NOLINT
}

/// A range of a region of nothing. Longer ones than the sink are asked for to check them only:
/// zeros cannot be written.
std::expected<Bytes, MemoryError> nothing(const MemoryKey& key, std::uint64_t length,
                                          std::uint32_t access) {
  if ((key.access & access) != access) return std::unexpected(MemoryError::kAccess);
  if (length > key.length) return std::unexpected(MemoryError::kRange);
  const bool writes = (access & kLocalWrite) != 0 && length <= kSinkSize;
  return Bytes(writes ? key.sink : key.base, length);
}

std::expected<Bytes, MemoryError> bytes_of(const MemoryKey& key, std::uint64_t address,
                                           std::uint64_t length, std::uint32_t access) {
  if ((key.access & access) != access && !mutant(Mutant::kAccessIgnored))
    return std::unexpected(MemoryError::kAccess);
  if (!covers(key, address, length)) return std::unexpected(MemoryError::kRange);
  return Bytes(byte_at(key, address), length);
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
  // Programs count the low byte of a window's key up by themselves: with index 0 it would pass 0.
  const std::size_t place = key.window != WindowType::kNone && free_.front() == 0 ? 1 : 0;
  if (place == free_.size()) return fail(std::errc::not_enough_memory, "no key for a window");
  const std::uint32_t index = free_[place];
  free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(place));
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
  if (entry.key.window != WindowType::kNone) {
    unbind(entry);
    entry.key.window = WindowType::kNone;
  } else if (key == 0 || entry.number.load(std::memory_order_relaxed) != key) {
    return false;
  }
  entry.number.store(0, std::memory_order_release);
  --size_;
  return true;
}

void KeyTable::change(std::uint32_t key, std::uint32_t access, std::uint32_t pd) {
  Entry& entry = entry_of(key);
  entry.key.access = access;
  entry.key.pd = pd;
}

std::optional<MemoryKey> KeyTable::describe(std::uint32_t key) const {
  const Entry& entry = entry_of(key);
  if (key == 0 || entry.number.load(std::memory_order_acquire) != key) return std::nullopt;
  return entry.key;
}

void KeyTable::reclaim(std::uint32_t key) { free_.push_back(index_of(key)); }

std::expected<const KeyTable::Entry*, MemoryError> KeyTable::find(std::uint32_t key,
                                                                  std::uint32_t pd) const {
  const Entry& entry = entry_of(key);
  const std::uint32_t number = entry.number.load(std::memory_order_acquire);
  if (mutant(Mutant::kGenerationIgnored) ? number == 0 : key == 0 || number != key)
    return std::unexpected(MemoryError::kUnknownKey);
  if (entry.key.pd != pd && !mutant(Mutant::kPdIgnored))
    return std::unexpected(MemoryError::kProtectionDomain);
  return &entry;
}

std::expected<Bytes, MemoryError> KeyTable::lookup(std::uint32_t key, std::uint64_t address,
                                                   std::uint64_t length, std::uint32_t access,
                                                   std::uint32_t pd) const {
  const auto entry = find(key, pd);
  if (!entry) return std::unexpected(entry.error());
  const MemoryKey& found = (*entry)->key;
  // A window opens memory to peers only.
  if (found.window != WindowType::kNone) return std::unexpected(MemoryError::kAccess);
  if (found.sink != nullptr) return nothing(found, length, access);
  return bytes_of(found, address, length, access);
}

std::expected<const KeyTable::Entry*, MemoryError> KeyTable::find_remote(
    std::uint32_t key, const KeyUser& user) const {
  const auto entry = find(key, user.pd);
  if (!entry) return entry;
  const bool others = (*entry)->qp_number != 0 && (*entry)->qp_number != user.qp_number;
  if (others && !mutant(Mutant::kWindowForAll)) return std::unexpected(MemoryError::kAccess);
  return entry;
}

std::expected<Bytes, MemoryError> KeyTable::lookup_remote(std::uint32_t key, std::uint64_t address,
                                                          std::uint64_t length,
                                                          std::uint32_t access,
                                                          const KeyUser& user) const {
  const auto entry = find_remote(key, user);
  if (!entry) return std::unexpected(entry.error());
  return bytes_of((*entry)->key, address, length, access);
}

std::expected<void, MemoryError> KeyTable::check_remote(std::uint32_t key, std::uint32_t access,
                                                        const KeyUser& user) const {
  const auto entry = find_remote(key, user);
  if (!entry) return std::unexpected(entry.error());
  if (((*entry)->key.access & access) != access) return std::unexpected(MemoryError::kAccess);
  return {};
}

// --- Windows

std::expected<KeyTable::Entry*, MemoryError> KeyTable::find_region(const WindowBinding& binding,
                                                                   std::uint32_t pd) {
  const auto entry = find(binding.region_key, pd);
  if (!entry) return std::unexpected(entry.error());
  const MemoryKey& region = (*entry)->key;
  const bool writes = (binding.access & (kRemoteWrite | kRemoteAtomic)) != 0;
  if (region.window != WindowType::kNone || (region.access & kWindowBind) == 0 ||
      (writes && (region.access & kLocalWrite) == 0))
    return std::unexpected(MemoryError::kAccess);
  if (!covers(region, binding.address, binding.length)) return std::unexpected(MemoryError::kRange);
  return &entry_of(binding.region_key);
}

/// The number goes first: who looks the key up meanwhile finds nothing.
void KeyTable::unbind(Entry& window) {
  window.number.store(0, std::memory_order_release);
  if (window.region != nullptr) window.region->windows.fetch_sub(1, std::memory_order_release);
  window.region = nullptr;
  window.qp_number = 0;
  window.key.length = 0;
  window.key.access = 0;
}

std::expected<void, MemoryError> KeyTable::invalidate(std::uint32_t key, const KeyUser& user) {
  const auto entry = find(key, user.pd);
  if (!entry) return std::unexpected(entry.error());
  if ((*entry)->key.window != WindowType::kType2 || (*entry)->qp_number != user.qp_number)
    return std::unexpected(MemoryError::kAccess);
  if (!mutant(Mutant::kInvalidationIgnored)) unbind(entry_of(key));
  return {};
}

std::expected<void, MemoryError> KeyTable::bind(const WindowBinding& binding, const KeyUser& user) {
  Entry& window = entry_of(binding.key);
  const WindowType type = window.key.window;
  if (type == WindowType::kNone || binding.key == 0)
    return std::unexpected(MemoryError::kUnknownKey);
  if (window.key.pd != user.pd) return std::unexpected(MemoryError::kProtectionDomain);
  // One of type 2 must be free: invalidated, or never bound.
  if (type == WindowType::kType2 && (window.region != nullptr || binding.length == 0))
    return std::unexpected(MemoryError::kAccess);
  Entry* region = nullptr;
  if (binding.length != 0) {
    const auto found = find_region(binding, user.pd);
    if (!found) return std::unexpected(found.error());
    region = *found;
  }
  unbind(window);
  if (region != nullptr) {
    window.key.base = byte_at(region->key, binding.address);
    window.key.address = (binding.access & kZeroBased) != 0 ? 0 : binding.address;
    window.key.length = binding.length;
    if (mutant(Mutant::kWindowTooWide))
      window.key.length = region->key.length - (binding.address - region->key.address);
    window.key.access = binding.access & kRemoteRights;
    window.region = region;
    window.qp_number = type == WindowType::kType2 ? user.qp_number : 0;
    region->windows.fetch_add(1, std::memory_order_release);
  }
  // Whoever has the entry next begins behind the number that the program chose.
  window.generation = static_cast<std::uint8_t>(binding.key);
  window.number.store(binding.key, std::memory_order_release);
  return {};
}

}  // namespace verbena::engine
