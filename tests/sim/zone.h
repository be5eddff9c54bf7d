// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/arena.h"

namespace verbena::sim {

using Data = std::shared_ptr<const std::vector<std::byte>>;

/// Memory that one direction of one connection reads and writes remotely. Requests of a queue pair
/// execute in order, so what each one sees and leaves behind is known when it is posted.
///
/// The arena's shadow has what requests that certainly executed left; those that may have executed
/// are pending, and each byte of theirs has its old or one of their values.
class Zone {
 public:
  Zone(Arena& arena, const Range& range);
  ~Zone();
  Zone(const Zone&) = delete;
  Zone& operator=(const Zone&) = delete;

  [[nodiscard]] const Range& range() const { return range_; }
  [[nodiscard]] Arena& arena() const { return arena_; }

  /// What a range holds after everything that was posted.
  [[nodiscard]] std::vector<std::byte> after_all(const Range& range) const;
  /// A request, numbered in posting order, that will store `data`.
  void post(std::uint64_t number, std::uint32_t offset, Data data);
  [[nodiscard]] bool pending(const Range& range) const;
  /// All requests up to `number` have executed.
  void executed(std::uint64_t number);
  /// Every byte has a value that it may have; requests from `limit` on have not executed.
  [[nodiscard]] std::optional<std::string> check(
      std::uint64_t limit = std::numeric_limits<std::uint64_t>::max()) const;
  /// The end of an epoch: what is there is what is there, and nothing is pending.
  void adopt();

 private:
  struct Pending {
    std::uint64_t number = 0;
    std::uint32_t offset = 0;
    Data data{};
    [[nodiscard]] Range range() const { return {offset, static_cast<std::uint32_t>(data->size())}; }
  };

  Arena& arena_;
  Range range_;
  std::deque<Pending> pending_;
};

}  // namespace verbena::sim
