// SPDX-License-Identifier: Apache-2.0
#include "wire/copy.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>

namespace verbena::wire {

/// So short that glibc copies each by a vector loop. A compiler that knows how long a piece may be
/// puts `rep movsq` in its place, which is no better; so it does not know.
void copy_in_pieces(std::byte* to, const std::byte* from, std::size_t size) {
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

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLine = 64;

[[gnu::target("avx2")]] inline void copy_line(std::byte* to, const std::byte* from) {
  constexpr std::size_t kHalf = kLine / 2;
  const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + kHalf));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), first);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kHalf), second);
}

/// Writes whole cache lines: the first one, and what is left of it again with the second. What is
/// written soon is brought nearer, by a hint, which may name memory that is not there.
[[gnu::target("avx2")]] void copy_by_lines(std::byte* to, const std::byte* from, std::size_t size) {
  if (size >= kLine) {
    copy_line(to, from);
    const std::size_t to_next_line = kLine - reinterpret_cast<std::uintptr_t>(to) % kLine;
    to += to_next_line;
    from += to_next_line;
    size -= to_next_line;
  }
  constexpr std::size_t kAhead = 16 * kLine;
  for (; size >= kLine; size -= kLine) {
    __builtin_prefetch(to + kAhead);
    copy_line(to, from);
    to += kLine;
    from += kLine;
  }
  std::memcpy(to, from, size);
}

/// "Enhanced REP MOVSB": CPUID leaf 7, EBX bit 9.
bool has_fast_strings() {
  constexpr std::uint32_t kErms = 1U << 9;
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kErms) != 0;
}

void copy_as_string(std::byte* to, const std::byte* from, std::size_t size) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

bool stand_alike(const std::byte* to, const std::byte* from) {
  return (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kLine ==
         0;
}

}  // namespace

void copy_long(std::byte* to, const std::byte* from, std::size_t size) {
  constexpr std::size_t kStringPays = 16 << 10;
  static const bool by_lines = __builtin_cpu_supports("avx2") != 0;
  static const bool by_string = has_fast_strings();
  if (size >= kStringPays && by_string && stand_alike(to, from))
    return copy_as_string(to, from, size);
  return by_lines ? copy_by_lines(to, from, size) : copy_in_pieces(to, from, size);
}

#else

void copy_long(std::byte* to, const std::byte* from, std::size_t size) {
  copy_in_pieces(to, from, size);
}

#endif

}  // namespace verbena::wire
