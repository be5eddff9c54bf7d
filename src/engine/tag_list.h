// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/receive_queue.h"
#include "engine/work.h"

namespace verbena::engine {

/// A receive for messages whose tag, masked, is this one.
struct TaggedReceive {
  std::uint64_t id = 0;
  std::uint64_t tag = 0;
  std::uint64_t mask = 0;
  std::span<const Sge> pieces{};
};

/// Receives that have tags, in the order in which they were added, and how far the program knows
/// what became of messages that matched none of them (rdma-core, tag_matching.md).
///
/// The program matches unexpected messages itself, with what it has added or is about to add. So a
/// receive that is added while there are unexpected messages which the program has not dealt with
/// yet, might be for one of those: it waits, until both have counted the same number of unexpected
/// messages and are *in step*.
class TagList {
 public:
  static constexpr std::uint32_t kMaxCapacity = 1U << 16;

  /// All storage is made here, in `memory`, which outlives it. `capacity` is at most kMaxCapacity.
  TagList(std::uint32_t capacity, std::uint32_t max_pieces, std::uint32_t pd,
          std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  /// Adds a receive behind all others. Returns its handle; not_enough_memory when the list is full,
  /// invalid_argument for too many pieces.
  [[nodiscard]] Result<std::uint32_t> add(const TaggedReceive& receive);
  /// False when it is not there any more.
  [[nodiscard]] bool remove(std::uint32_t handle);
  /// The program has dealt with so many unexpected messages.
  void sync(std::uint32_t handled);
  [[nodiscard]] bool in_step() const { return handled_ == unexpected_; }

  /// Moves the first receive for the tag that does not wait into `wqe`, whose vector has room for
  /// the pieces; false when there is none.
  [[nodiscard]] bool take(std::uint64_t tag, ReceiveWqe& wqe);
  /// A message matched none.
  void note_unexpected() { ++unexpected_; }
  /// One of those will not reach the program, which can never count it.
  void forget_unexpected();

  [[nodiscard]] std::uint32_t capacity() const { return static_cast<std::uint32_t>(slots_.size()); }
  [[nodiscard]] std::uint32_t max_pieces() const { return max_pieces_; }

 private:
  struct Slot {
    std::uint64_t id = 0;
    std::uint64_t tag = 0;
    std::uint64_t mask = 0;
    std::uint32_t count = 0;       ///< of pieces
    std::uint16_t generation = 0;  ///< in the handle, so that an old one finds nothing
  };

  void drop(std::size_t place);
  void wake_all();

  std::uint32_t max_pieces_;
  std::uint32_t pd_;
  std::pmr::vector<Slot> slots_;
  std::pmr::vector<Sge> pieces_;  ///< max_pieces_ for each slot
  std::pmr::vector<std::uint32_t> free_;
  std::pmr::vector<std::uint32_t> order_;  ///< of the slots in use
  std::size_t awake_ = 0;                  ///< of those, how many do not wait: the first ones
  std::uint32_t unexpected_ = 0;
  std::uint32_t handled_ = 0;
};

}  // namespace verbena::engine
