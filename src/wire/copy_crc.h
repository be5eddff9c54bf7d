// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace verbena::wire {

/// The CRC-32 of the ICRC, continued: 0 begins, and what comes out goes in again for the bytes
/// behind. (IEEE 802.3's polynomial, reflected, with both inversions.)
[[nodiscard]] std::uint32_t crc32(std::uint32_t state, ConstBytes bytes);

/// Copies `size` bytes and returns the CRC of what `state` stands for, `head`, and them: in one
/// pass over the memory, since the two together cost what one of them does (performance.md, What
/// wins). Only the bytes are copied, not `head`. Short and large sizes alike; the ranges do not
/// overlap.
///
/// The processor decides which of four ways it goes: carry-less multiplication of 64 bytes at a
/// time (VPCLMULQDQ with AVX-512), of 32 (with AVX2) or of 16 (PCLMULQDQ), and a copy with isa-l's
/// CRC behind it.
[[nodiscard]] std::uint32_t copy_crc32(std::uint32_t state, ConstBytes head, std::byte* to,
                                       const std::byte* from, std::size_t size);

/// One of the ways, for tests.
struct CopyCrc {
  const char* name;
  bool usable;  ///< on this processor
  std::uint32_t (*copy)(std::uint32_t state, ConstBytes head, std::byte* to, const std::byte* from,
                        std::size_t size);
  std::uint32_t (*crc)(std::uint32_t state, const std::byte* from, std::size_t size);
};
[[nodiscard]] std::span<const CopyCrc> copy_crc_ways();

}  // namespace verbena::wire
