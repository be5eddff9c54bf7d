// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "wire/train.h"

namespace verbena::nic {

/// A management datagram that is kept for a while, with its path.
class StoredDatagram {
 public:
  /// A packet of queue pair 1, BTH to ICRC, has 280 bytes.
  static constexpr std::size_t kLargest = 320;
  [[nodiscard]] static bool fits(const wire::Segment& segment) {
    return segment.datagram.size() <= kLargest;
  }

  /// It fits.
  explicit StoredDatagram(const wire::Segment& segment)
      : size_(static_cast<std::uint16_t>(segment.datagram.size())),
        position_(segment.position),
        path_(segment.path) {
    std::ranges::copy(segment.datagram, bytes_.begin());
  }

  [[nodiscard]] const wire::Path& path() const { return path_; }
  /// A view of it.
  [[nodiscard]] wire::Segment segment() const {
    return {.datagram = ConstBytes(bytes_).first(size_), .path = path_, .position = position_};
  }

 private:
  std::uint16_t size_;
  std::uint16_t position_;
  wire::Path path_;
  std::array<std::byte, kLargest> bytes_{};
};

}  // namespace verbena::nic
