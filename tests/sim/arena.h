// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"

namespace verbena::sim {

/// Bytes within an arena.
struct Range {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;

  [[nodiscard]] std::uint32_t end() const { return offset + size; }
  [[nodiscard]] bool overlaps(const Range& other) const {
    return offset < other.end() && other.offset < end();
  }
  bool operator==(const Range&) const = default;
};

/// All memory of one simulated process that a NIC could reach, at the same address in every run,
/// and beside it what every byte of it must be. A range that a request under way may write is
/// unsettled: its owner checks it; everything else must equal the shadow at any time.
class Arena {
 public:
  static constexpr std::uint32_t kSize = 6 << 20;
  static constexpr std::size_t kMaxArenas = 4;
  static constexpr std::uint32_t kPage = 4096;
  /// Behind the memory that is checked: a page that lose() takes away, between two that stay.
  static constexpr Range kBrittle{kSize, 3 * kPage};
  static constexpr Range kLost{kSize + kPage, kPage};

  /// `index` below kMaxArenas; one arena of an index lives at a time.
  explicit Arena(std::size_t index);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Everything anew: contents from the seed, no range taken, all settled, nothing lost.
  void reset(std::uint64_t seed);
  /// Every access to kLost faults from now on, as if the program had unmapped it.
  void lose();

  [[nodiscard]] std::byte* at(std::uint32_t offset) const { return base_ + offset; }
  [[nodiscard]] std::uint64_t address(std::uint32_t offset) const {
    return reinterpret_cast<std::uintptr_t>(base_) + offset;
  }
  [[nodiscard]] ConstBytes bytes(const Range& range) const {
    return {base_ + range.offset, range.size};
  }
  [[nodiscard]] ConstBytes shadow(const Range& range) const {
    return ConstBytes(shadow_).subspan(range.offset, range.size);
  }

  /// A range that nobody has, with a few bytes around it that stay nobody's; nothing when full.
  [[nodiscard]] std::optional<Range> take(std::uint32_t size, std::uint32_t alignment,
                                          Random& random);
  void give_back(const Range& range);

  /// The program's own store: memory and shadow.
  void write(std::uint32_t offset, ConstBytes bytes);
  /// What a request must have stored: the shadow only.
  void expect(std::uint32_t offset, ConstBytes bytes);
  /// The shadow takes over what is there.
  void adopt(const Range& range);

  void unsettle(const Range& range);
  void settle(const Range& range);

  /// Compares all that is settled with the shadow; says what differs first.
  [[nodiscard]] std::optional<std::string> check() const;

 private:
  std::byte* base_;
  std::vector<std::byte> shadow_;
  std::map<std::uint32_t, std::uint32_t> taken_;      ///< offset to end, guards included
  std::map<std::uint32_t, std::uint32_t> inner_;      ///< offset given out to offset taken
  std::map<std::uint32_t, std::uint32_t> unsettled_;  ///< offset to end; disjoint
  std::uint32_t next_ = 0;                            ///< where to look for room first
};

/// A range of an arena that gives itself back. Shared by the requests that use it.
class Buffer {
 public:
  Buffer(Arena& arena, const Range& range) : arena_(arena), range_(range) {}
  ~Buffer() { arena_.give_back(range_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  [[nodiscard]] const Range& range() const { return range_; }
  [[nodiscard]] Arena& arena() const { return arena_; }

 private:
  Arena& arena_;
  Range range_;
};
using BufferPtr = std::shared_ptr<Buffer>;

/// Bytes that look like nothing else in the run.
void fill_pattern(Bytes bytes, Random& random);

}  // namespace verbena::sim
