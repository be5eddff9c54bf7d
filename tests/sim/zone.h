// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/arena.h"

namespace verbena::sim {

using Data = std::shared_ptr<const std::vector<std::byte>>;

/// Where a message that is under way may have left any bytes: in its middle packets, whose payload
/// is placed while it is verified, when the network corrupts some.
struct Spoil {
  std::uint32_t mtu = 0;  ///< 0: nowhere
  [[nodiscard]] bool covers(std::uint64_t at, std::uint64_t size) const {
    return mtu != 0 && at >= mtu && at < (size - 1) / mtu * mtu;
  }
};

/// What a request may store in a zone, or has stored.
struct Store {
  std::uint32_t offset = 0;
  Data data{};

  [[nodiscard]] Range range() const { return {offset, static_cast<std::uint32_t>(data->size())}; }
  /// Whether the byte at an offset can have its value from this request.
  [[nodiscard]] bool explains(std::uint32_t at, std::byte value, Spoil spoil) const {
    if (at < offset || at >= range().end()) return false;
    return (*data)[at - offset] == value || spoil.covers(at - offset, data->size());
  }
};

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
  [[nodiscard]] std::optional<std::string> check(std::uint64_t limit, Spoil spoil) const;
  /// The end of an epoch: what is there is what is there, and nothing is pending.
  void adopt();

 private:
  struct Pending {
    std::uint64_t number = 0;
    Store store{};
  };

  Arena& arena_;
  Range range_;
  std::deque<Pending> pending_;
};

}  // namespace verbena::sim
