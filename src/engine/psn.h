// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "wire/headers.h"

/// Arithmetic of 24-bit packet sequence numbers, whose window is ±2^23 (engine.md, "Responder").
namespace verbena::engine {

[[nodiscard]] constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t count) {
  return (psn + count) & wire::kMask24;
}

/// How far `psn` is ahead of `from`: in [-2^23, 2^23).
[[nodiscard]] constexpr std::int32_t psn_distance(std::uint32_t psn, std::uint32_t from) {
  return static_cast<std::int32_t>((psn - from) << 8) >> 8;
}

/// Packets that a message of `length` bytes takes: at least one (a zero-length message is one
/// packet). `mtu` is a power of two.
[[nodiscard]] constexpr std::uint32_t packet_count(std::uint64_t length, std::uint32_t mtu) {
  return length == 0 ? 1 : static_cast<std::uint32_t>((length + mtu - 1) >> std::countr_zero(mtu));
}

}  // namespace verbena::engine
