// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena {

/// A seeded generator whose sequence is the same on every platform and build (xoshiro256**,
/// Blackman and Vigna 2018, seeded by splitmix64). For simulation, faults and jitter; keys come
/// from the host's entropy instead.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) {
    for (auto& word : state_) {
      seed += 0x9E3779B97F4A7C15ULL;
      std::uint64_t mixed = seed;
      mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
      mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
      word = mixed ^ (mixed >> 31);
    }
  }

  [[nodiscard]] constexpr std::uint64_t next() {
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  /// A number in [0, bound); bound is at least 1. The bias of the multiply-shift is below bound /
  /// 2^64.
  [[nodiscard]] constexpr std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

  /// A number in [low, high].
  [[nodiscard]] constexpr std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }

  /// True in `parts` cases of a million.
  [[nodiscard]] constexpr bool chance_ppm(std::uint32_t parts) { return below(1'000'000) < parts; }

 private:
  __extension__ using Wide = unsigned __int128;

  [[nodiscard]] static constexpr std::uint64_t rotate(std::uint64_t value, int by) {
    return (value << by) | (value >> (64 - by));
  }

  std::uint64_t state_[4]{};
};

}  // namespace verbena
