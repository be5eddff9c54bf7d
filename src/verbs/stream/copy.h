// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace verbena::verbs::streams {

/// memcpy for what users read and write, which seldom lies in its page as a stream's memory does.
///
/// In pieces, each just so short that glibc copies it by a vector loop: from 2 KiB on it uses `rep
/// movsb`, which on AMD's processors is twenty times slower when the destination is a few bytes
/// further into its page than the source, as a long allocation is. Meanwhile the lines that are
/// written next are brought nearer: users' memory may be in no cache.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kPiece = 31 * kLine;
  while (size != 0) {
    std::size_t piece = std::min(size, kPiece);
    const std::size_t next = std::min(size - piece, kPiece);
    for (std::size_t at = 0; at < next; at += kLine) __builtin_prefetch(to + piece + at);
    asm("" : "+r"(piece));  // a compiler that knows its bound puts `rep movsq` in its place
    std::memcpy(to, from, piece);
    to += piece;
    from += piece;
    size -= piece;
  }
}

}  // namespace verbena::verbs::streams
