// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

namespace verbena::wire {

/// copy_bytes() of many.
void copy_long(std::byte* to, const std::byte* from, std::size_t size);
/// What it does on processors without AVX2; for tests.
void copy_in_pieces(std::byte* to, const std::byte* from, std::size_t size);

/// memcpy for payloads, whose source and destination are seldom aligned alike: behind a header they
/// never are. The ranges do not overlap.
///
/// From 2 KiB on glibc uses `rep movsb`, which on AMD's processors is up to four times slower than
/// a vector loop for some alignments, and thirty times when the destination is a few bytes further
/// into its page than the source. Where both stand alike in a cache line and much is copied it is
/// a fifth faster instead, and then it is used here, beyond the sizes where glibc leaves it, too.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) {
  constexpr std::size_t kLong = 512;
  if (size < kLong) {
    if (size != 0) std::memcpy(to, from, size);  // there may be no memory, and nothing to copy
  } else {
    copy_long(to, from, size);
  }
}

}  // namespace verbena::wire
