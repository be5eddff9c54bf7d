// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace verbena::conformance {

/// Bytes that tester and subject both know without telling each other: what packets carry and what
/// the subject sends (`data=K` begins at K), and what a region holds before anything is written.
[[nodiscard]] constexpr std::byte payload_pattern(std::size_t place) {
  return static_cast<std::byte>((place * 131 + 17) % 251);
}
[[nodiscard]] constexpr std::byte initial_pattern(std::size_t place) {
  return static_cast<std::byte>((place * 31 + 7) % 253);
}

/// Of each of the subject's regions.
inline constexpr std::size_t kRegionSize = 16 << 10;

}  // namespace verbena::conformance
