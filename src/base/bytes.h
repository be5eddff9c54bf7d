// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace verbena {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

namespace detail {
template <std::unsigned_integral T>
[[nodiscard]] constexpr T big_endian(T value) {
  if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1) return value;
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}
}  // namespace detail

/// Loads and stores of big-endian numbers at any alignment. The caller has checked that the bytes
/// are there.
template <std::unsigned_integral T>
[[nodiscard]] inline T load_be(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return detail::big_endian(value);
}

template <std::unsigned_integral T>
inline void store_be(std::byte* to, T value) {
  value = detail::big_endian(value);
  std::memcpy(to, &value, sizeof value);
}

/// The 24-bit fields of InfiniBand headers (PSN, QPN, MSN).
[[nodiscard]] inline std::uint32_t load_be24(const std::byte* from) {
  return (std::to_integer<std::uint32_t>(from[0]) << 16) |
         (std::to_integer<std::uint32_t>(from[1]) << 8) | std::to_integer<std::uint32_t>(from[2]);
}

inline void store_be24(std::byte* to, std::uint32_t value) {
  to[0] = static_cast<std::byte>(value >> 16);
  to[1] = static_cast<std::byte>(value >> 8);
  to[2] = static_cast<std::byte>(value);
}

}  // namespace verbena
