// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace verbena::wire {

/// memcpy for payloads. It goes piece by piece because from 2 KiB on glibc uses `rep movsb`, which
/// on Zen 3 is four times slower than its vector loop when source and destination are aligned
/// differently (behind a header they always are), and fifty times when the destination is a few
/// bytes further into its page than the source. A compiler that knows how long a piece may be puts
/// `rep movsq` in its place, which is no better; so it does not know.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) {
  constexpr std::size_t kPiece = 1024;
  while (size != 0) {
    std::size_t piece = std::min(size, kPiece);
    asm("" : "+r"(piece));
    std::memcpy(to, from, piece);
    to += piece;
    from += piece;
    size -= piece;
  }
}

}  // namespace verbena::wire
