// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/result.h"
#include "engine/memory.h"

namespace verbena::engine {

/// What a memory key stands for.
struct MemoryKey {
  std::byte* base = nullptr;  ///< where the bytes are in this process
  std::uint64_t address = 0;  ///< what work requests and peers call the first byte (the IOVA)
  std::uint64_t length = 0;
  std::uint32_t access = 0;
  std::uint32_t pd = 0;
  bool window = false;  ///< may be invalidated (memory windows)
};

/// The keys of one NIC: lkey and rkey are the same number. The upper 24 bits are the index of the
/// entry, the low 8 a generation that changes with every use of the entry, so that a stale key is
/// refused.
///
/// Threads: lookup() runs beside insert() and erase() without a lock. insert() and erase() are
/// serialised by the caller. An erased entry may still be in use by lookups under way: the caller
/// passes once through every shard before it lets the memory go (`nic.md`), and only then calls
/// reclaim().
class KeyTable final : public MemoryLookup {
 public:
  /// Room for `capacity` keys; `seed` is where indices and generations start (from the host's
  /// entropy).
  KeyTable(std::uint32_t capacity, std::uint64_t seed);
  ~KeyTable();
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  /// Enters a key and returns its number; not_enough_memory when the table is full.
  [[nodiscard]] Result<std::uint32_t> insert(const MemoryKey& key);
  /// From the return on, new lookups of the key fail. False when there is no such key.
  bool erase(std::uint32_t key);
  /// Gives an erased key's entry free for another one.
  void reclaim(std::uint32_t key);

  [[nodiscard]] std::expected<Bytes, MemoryError> lookup(std::uint32_t key, std::uint64_t address,
                                                         std::uint64_t length, std::uint32_t access,
                                                         std::uint32_t pd) const override;
  [[nodiscard]] std::expected<void, MemoryError> invalidate(std::uint32_t key, std::uint32_t pd,
                                                            std::uint32_t qp_number) override;

  [[nodiscard]] std::uint32_t size() const { return size_; }

 private:
  struct Entry {
    std::atomic<std::uint32_t> number{0};  ///< the key, or 0 when the entry is not in use
    MemoryKey key{};
    std::uint8_t generation = 0;
  };

  [[nodiscard]] Entry& entry_of(std::uint32_t key) { return entries_[(key >> 8) % capacity_]; }
  [[nodiscard]] const Entry& entry_of(std::uint32_t key) const {
    return entries_[(key >> 8) % capacity_];
  }

  std::uint32_t capacity_;
  std::uint32_t size_ = 0;
  std::unique_ptr<Entry[]> entries_;
  std::deque<std::uint32_t> free_;  ///< indices, longest unused first
};

}  // namespace verbena::engine
