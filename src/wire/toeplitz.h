// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace verbena::wire {

/// The hash by which network cards spread frames (receive-side scaling): each one-bit of the input
/// adds the 32 bits of the key that begin at its place.
class Toeplitz {
 public:
  static constexpr std::size_t kKeySize = 40;
  /// For two IPv6 addresses and two ports.
  static constexpr std::size_t kMaxInput = 36;

  explicit Toeplitz(std::span<const std::byte, kKeySize> key);

  /// Of at most kMaxInput bytes.
  [[nodiscard]] std::uint32_t hash(ConstBytes input) const;

 private:
  std::array<std::byte, kKeySize> key_{};
};

}  // namespace verbena::wire
