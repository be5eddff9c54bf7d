// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "base/result.h"
#include "engine/memory.h"

namespace verbena::engine {

/// Kinds of memory windows (ibv_mw_type). One of type 2 is for one queue pair only, and can be
/// invalidated.
enum class WindowType : std::uint8_t { kNone = 0, kType1 = 1, kType2 = 2 };

/// What a memory key stands for.
struct MemoryKey {
  std::byte* base = nullptr;  ///< where the bytes are in this process
  std::uint64_t address = 0;  ///< what work requests and peers call the first byte (the IOVA)
  std::uint64_t length = 0;
  std::uint32_t access = 0;
  std::uint32_t pd = 0;
  /// Not null in a region of nothing: `length` zeros at `base` are what any range reads as, and
  /// what is written, kSinkSize bytes at most at once, goes here.
  std::byte* sink = nullptr;
  WindowType window = WindowType::kNone;  ///< kNone: a region
};

/// More than any packet carries.
inline constexpr std::uint64_t kSinkSize = 64 << 10;

/// The keys of one NIC: lkey and rkey are the same number. The upper 24 bits are the index of the
/// entry, the low 8 a generation that changes with every use of the entry, so that a stale key is
/// refused.
///
/// Threads: lookups, bind() and invalidate() run with the shard held, beside insert() and erase()
/// and without a lock. insert() and erase() are serialised by the caller. An erased entry may still
/// be in use by lookups under way: the caller passes once through every shard before it lets the
/// memory go (`nic.md`), and only then calls reclaim().
class KeyTable final : public MemoryLookup {
 public:
  /// Room for `capacity` keys; `seed` is where indices and generations start (from the host's
  /// entropy).
  KeyTable(std::uint32_t capacity, std::uint64_t seed);
  ~KeyTable();
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  /// Enters a key and returns its number; not_enough_memory when the table is full. A window is
  /// entered without a range, and gets it by bind().
  [[nodiscard]] Result<std::uint32_t> insert(const MemoryKey& key);
  /// From the return on, new lookups of the key fail. False when there is no such key. Of a window
  /// any number that it had will do.
  bool erase(std::uint32_t key);
  /// Whether windows are bound to a region.
  [[nodiscard]] bool has_windows(std::uint32_t key) const {
    return entry_of(key).windows.load(std::memory_order_acquire) != 0;
  }
  /// Changes the rights and the protection domain of a region's key; the shard is held.
  void change(std::uint32_t key, std::uint32_t access, std::uint32_t pd);
  /// What a key stands for; nothing when there is no such key. The shard is held.
  [[nodiscard]] std::optional<MemoryKey> describe(std::uint32_t key) const;
  /// Gives an erased key's entry free for another one.
  void reclaim(std::uint32_t key);

  [[nodiscard]] std::expected<Bytes, MemoryError> lookup(std::uint32_t key, std::uint64_t address,
                                                         std::uint64_t length, std::uint32_t access,
                                                         std::uint32_t pd) const override;
  [[nodiscard]] std::expected<Bytes, MemoryError> lookup_remote(std::uint32_t key,
                                                                std::uint64_t address,
                                                                std::uint64_t length,
                                                                std::uint32_t access,
                                                                const KeyUser& user) const override;
  [[nodiscard]] std::expected<void, MemoryError> check_remote(std::uint32_t key,
                                                              std::uint32_t access,
                                                              const KeyUser& user) const override;
  [[nodiscard]] std::expected<void, MemoryError> invalidate(std::uint32_t key,
                                                            const KeyUser& user) override;
  [[nodiscard]] std::expected<void, MemoryError> bind(const WindowBinding& binding,
                                                      const KeyUser& user) override;

  [[nodiscard]] std::uint32_t size() const { return size_; }

 private:
  struct Entry {
    std::atomic<std::uint32_t> number{0};  ///< the key, or 0 when it opens nothing
    MemoryKey key{};
    std::uint8_t generation = 0;
    // Of a window: who may use it, 0 for all of its protection domain, and what it is bound to.
    std::uint32_t qp_number = 0;
    Entry* region = nullptr;
    std::atomic<std::uint32_t> windows{0};  ///< of a region: those that are bound to it
  };

  /// The entry of a key that is valid for a user.
  [[nodiscard]] std::expected<const Entry*, MemoryError> find(std::uint32_t key,
                                                              std::uint32_t pd) const;
  /// The same for a key that a peer gave.
  [[nodiscard]] std::expected<const Entry*, MemoryError> find_remote(std::uint32_t key,
                                                                     const KeyUser& user) const;
  [[nodiscard]] std::expected<Entry*, MemoryError> find_region(const WindowBinding& binding,
                                                               std::uint32_t pd);
  static void unbind(Entry& window);

  [[nodiscard]] Entry& entry_of(std::uint32_t key) { return entries_[index_of(key)]; }
  [[nodiscard]] const Entry& entry_of(std::uint32_t key) const { return entries_[index_of(key)]; }
  [[nodiscard]] std::uint32_t index_of(std::uint32_t key) const {
    return (key >> 8) & (capacity_ - 1);
  }

  std::uint32_t capacity_;  ///< a power of two
  std::uint32_t size_ = 0;
  std::unique_ptr<Entry[]> entries_;
  std::deque<std::uint32_t> free_;  ///< indices, longest unused first
};

}  // namespace verbena::engine
