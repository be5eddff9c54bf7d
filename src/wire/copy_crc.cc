// SPDX-License-Identifier: Apache-2.0
#include "wire/copy_crc.h"

#include <isa-l/crc.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "wire/copy.h"

namespace verbena::wire {
namespace {

std::uint32_t isal_crc32(std::uint32_t state, const std::byte* from, std::size_t size) {
  return crc32_gzip_refl(state, reinterpret_cast<const unsigned char*>(from), size);
}

std::uint32_t copy_plainly(std::uint32_t state, ConstBytes head, std::byte* to,
                           const std::byte* from, std::size_t size) {
  constexpr std::size_t kPiece = 4096;  // that stays in the nearest cache
  state = isal_crc32(state, head.data(), head.size());
  while (size != 0) {
    const std::size_t piece = std::min(size, kPiece);
    copy_bytes(to, from, piece);
    state = isal_crc32(state, to, piece);
    to += piece;
    from += piece;
    size -= piece;
  }
  return state;
}

#if defined(__x86_64__)

// A CRC is the remainder of a polynomial whose coefficients are the bits. Bytes far ahead of others
// can be moved next to them, multiplied by the remainder of x^distance: so accumulators of 128 bits
// run over the memory, each folded onto what stands a fixed distance behind it, until one is left
// that has the CRC of all. (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel, 2009.)

constexpr std::size_t kBlock = 16;

/// The remainder of x^n, reflected (bit 31 is the coefficient of 1).
constexpr std::uint64_t power(unsigned n) {
  std::uint32_t value = 0x80000000;
  for (unsigned i = 0; i < n; ++i) value = (value >> 1) ^ (0xEDB88320U & (0U - (value & 1U)));
  return value;
}
/// What the low and the high half of an accumulator are multiplied with to get `bits` further. A
/// reflected product stands one bit too low.
constexpr std::uint64_t fold_low(unsigned bits) { return power(bits + 32) << 1; }
constexpr std::uint64_t fold_high(unsigned bits) { return power(bits - 32) << 1; }
static_assert(fold_low(512) == 0x154442BD4 && fold_high(512) == 0x1C6E41596);

/// The polynomial P with its coefficient of x^32, reflected: bit 0 is that one.
constexpr std::uint64_t kPolynomial = (std::uint64_t{0xEDB88320} << 1) | 1;
/// x^64/P without its remainder, reflected: bit 0 is the coefficient of x^32.
constexpr std::uint64_t quotient() {
  std::uint64_t found = 0;
  std::uint64_t rest = 1;  // of x^64: bit n is the coefficient of x^(64 - n)
  for (unsigned n = 0; n <= 32; ++n, rest >>= 1) {
    if ((rest & 1) == 0) continue;
    found |= std::uint64_t{1} << n;
    rest ^= kPolynomial;
  }
  return found;
}
constexpr std::uint64_t kQuotient = quotient();
static_assert(kQuotient == 0x1F7011641);

#define VERBENA_PCLMUL gnu::target("sse4.1,pclmul")
#define VERBENA_VPCLMUL_256 gnu::target("sse4.1,pclmul,avx2,vpclmulqdq")
#define VERBENA_VPCLMUL_512 gnu::target("sse4.1,pclmul,avx2,avx512f,avx512vl,vpclmulqdq")

[[VERBENA_PCLMUL]] inline __m128i fold(__m128i from, __m128i factors, __m128i onto) {
  const __m128i low = _mm_clmulepi64_si128(from, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(from, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

template <unsigned kBits>
[[VERBENA_PCLMUL]] inline __m128i factors() {
  return _mm_set_epi64x(static_cast<long long>(fold_high(kBits)),
                        static_cast<long long>(fold_low(kBits)));
}

[[VERBENA_PCLMUL]] inline __m128i take(std::byte*& to, const std::byte*& from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
  to += kBlock;
  from += kBlock;
  return bytes;
}

[[VERBENA_PCLMUL]] inline __m128i load(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

/// Read from its n-th byte on: what moves a block's first n bytes to its end, with zeros before
/// them. Zeros at the beginning are nothing to a CRC.
alignas(kBlock) constexpr std::array<std::uint8_t, 2 * kBlock> kToTheEnd = [] {
  std::array<std::uint8_t, 2 * kBlock> from{};
  for (std::size_t i = 0; i < kBlock; ++i) {
    from[i] = 0x80;
    from[kBlock + i] = static_cast<std::uint8_t>(i);
  }
  return from;
}();

/// Whether accumulate() takes so many bytes.
constexpr bool accumulates(std::size_t size) { return size >= kBlock && size % 4 == 0; }

/// A state and the bytes behind it as one accumulator. A state counts as if it were added to the
/// four bytes behind it, which are in the first block.
[[VERBENA_PCLMUL]] inline __m128i accumulate(std::uint32_t state, const std::byte* from,
                                             std::size_t size) {
  const std::size_t first = (size - 1) % kBlock + 1;
  const __m128i added = _mm_cvtsi32_si128(static_cast<int>(~state));
  const __m128i to_the_end =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(kToTheEnd.data() + first));
  __m128i block = _mm_shuffle_epi8(_mm_xor_si128(load(from), added), to_the_end);
  for (std::size_t at = first; at < size; at += kBlock)
    block = fold(block, factors<128>(), load(from + at));
  return block;
}

/// A state and a packet's headers behind it as the accumulator before the first bytes.
struct Beginning {
  __m128i block;
  __m128i added;  ///< to the first bytes
};
/// A BTH alone, in most packets.
constexpr std::size_t kUsualHead = 12;
[[VERBENA_PCLMUL]] inline Beginning beginning(std::uint32_t state, ConstBytes head) {
  if (head.size() == kUsualHead) {
    std::uint32_t first = 0;
    std::uint64_t rest = 0;
    std::memcpy(&first, head.data(), sizeof first);
    std::memcpy(&rest, head.data() + sizeof first, sizeof rest);
    const std::uint64_t low = std::uint64_t{first ^ ~state} << 32;
    return {.block = _mm_set_epi64x(std::bit_cast<long long>(rest), std::bit_cast<long long>(low)),
            .added = _mm_setzero_si128()};
  }
  if (accumulates(head.size())) {
    return {.block = accumulate(state, head.data(), head.size()), .added = _mm_setzero_si128()};
  }
  state = isal_crc32(state, head.data(), head.size());
  return {.block = _mm_setzero_si128(), .added = _mm_cvtsi32_si128(static_cast<int>(~state))};
}

/// The CRC of an accumulator that nothing was before, inverted as the library's. Its first half is
/// moved onto the second, what stands before 64 bits onto those, and their remainder is found by
/// Barrett's reduction: the quotient's 32 bits by a product with x^64/P, taken off times P.
[[VERBENA_PCLMUL]] inline std::uint32_t crc_of_block(__m128i block) {
  const __m128i word = _mm_cvtsi32_si128(-1);
  constexpr std::uint64_t kBy64 = power(64) << 1;
  const __m128i by =
      _mm_set_epi64x(std::bit_cast<long long>(kBy64), std::bit_cast<long long>(fold_high(128)));
  block = _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00), _mm_srli_si128(block, 8));
  const __m128i front = _mm_clmulepi64_si128(_mm_and_si128(block, word), by, 0x10);
  block = _mm_xor_si128(front, _mm_srli_si128(block, 4));
  const __m128i barrett =
      _mm_set_epi64x(static_cast<long long>(kPolynomial), static_cast<long long>(kQuotient));
  __m128i off = _mm_clmulepi64_si128(_mm_and_si128(block, word), barrett, 0x00);
  off = _mm_clmulepi64_si128(_mm_and_si128(off, word), barrett, 0x10);
  return ~static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(block, off), 1));
}

/// What is left when fewer than four accumulators fit.
[[VERBENA_PCLMUL]] std::uint32_t finish(__m128i block, std::byte* to, const std::byte* from,
                                        std::size_t size) {
  for (; size >= kBlock; size -= kBlock) block = fold(block, factors<128>(), take(to, from));
  const std::uint32_t state = crc_of_block(block);
  if (size == 0) return state;
  std::memcpy(to, from, size);
  return isal_crc32(state, to, size);
}

/// For small packets; of more bytes the library makes several accumulators.
[[VERBENA_PCLMUL]] std::uint32_t crc_by_16(std::uint32_t state, const std::byte* from,
                                           std::size_t size) {
  constexpr std::size_t kSmall = 256;
  if (!accumulates(size) || size > kSmall) return isal_crc32(state, from, size);
  return crc_of_block(accumulate(state, from, size));
}

[[VERBENA_PCLMUL]] std::uint32_t copy_by_16(std::uint32_t state, ConstBytes head, std::byte* to,
                                            const std::byte* from, std::size_t size) {
  constexpr std::size_t kStep = 4 * kBlock;
  if (size < kBlock) return copy_plainly(state, head, to, from, size);
  const Beginning begin = beginning(state, head);
  __m128i a = fold(begin.block, factors<128>(), _mm_xor_si128(begin.added, take(to, from)));
  if (size < kStep) return finish(a, to, from, size - kBlock);
  __m128i b = take(to, from);
  __m128i c = take(to, from);
  __m128i d = take(to, from);
  const __m128i far = factors<8 * kStep>();
  for (size -= kStep; size >= kStep; size -= kStep) {
    a = fold(a, far, take(to, from));
    b = fold(b, far, take(to, from));
    c = fold(c, far, take(to, from));
    d = fold(d, far, take(to, from));
  }
  const __m128i near = factors<128>();
  return finish(fold(fold(fold(a, near, b), near, c), near, d), to, from, size);
}

// By 32 and by 64 bytes at a time: an accumulator in each 16 of a register.

/// Brings lines nearer that are written soon: where memory is used in turn, as receives are, they
/// are in a far cache. A hint, which may name memory that is not there.
template <std::size_t kSize>
inline void expect_to_write(const std::byte* to) {
  constexpr std::size_t kAhead = 1024;
  constexpr std::size_t kLine = 64;
  for (std::size_t at = 0; at < kSize; at += kLine) __builtin_prefetch(to + kAhead + at);
}

[[VERBENA_VPCLMUL_256]] inline __m256i fold(__m256i from, __m256i factors, __m256i onto) {
  const __m256i low = _mm256_clmulepi64_epi128(from, factors, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(from, factors, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), onto);
}

template <unsigned kBits>
[[VERBENA_VPCLMUL_256]] inline __m256i factors_256() {
  constexpr auto kLow = static_cast<long long>(fold_low(kBits));
  constexpr auto kHigh = static_cast<long long>(fold_high(kBits));
  return _mm256_set_epi64x(kHigh, kLow, kHigh, kLow);
}

[[VERBENA_VPCLMUL_256]] inline __m256i take_256(std::byte*& to, const std::byte*& from) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
  to += sizeof bytes;
  from += sizeof bytes;
  return bytes;
}

[[VERBENA_VPCLMUL_256]] std::uint32_t copy_by_32(std::uint32_t state, ConstBytes head,
                                                 std::byte* to, const std::byte* from,
                                                 std::size_t size) {
  constexpr std::size_t kWide = 32;
  constexpr std::size_t kStep = 4 * kWide;
  if (size < kStep) return copy_by_16(state, head, to, from, size);
  const Beginning begin = beginning(state, head);
  const __m128i before = fold(begin.block, factors<128>(), begin.added);
  __m256i a = _mm256_xor_si256(_mm256_zextsi128_si256(before), take_256(to, from));
  __m256i b = take_256(to, from);
  __m256i c = take_256(to, from);
  __m256i d = take_256(to, from);
  const __m256i far = factors_256<8 * kStep>();
  for (size -= kStep; size >= kStep; size -= kStep) {
    expect_to_write<kStep>(to);
    a = fold(a, far, take_256(to, from));
    b = fold(b, far, take_256(to, from));
    c = fold(c, far, take_256(to, from));
    d = fold(d, far, take_256(to, from));
  }
  const __m256i near = factors_256<8 * kWide>();
  a = fold(fold(fold(a, near, b), near, c), near, d);
  for (; size >= kWide; size -= kWide) a = fold(a, near, take_256(to, from));
  const __m128i last =
      fold(_mm256_castsi256_si128(a), factors<128>(), _mm256_extracti128_si256(a, 1));
  return finish(last, to, from, size);
}

[[VERBENA_VPCLMUL_512]] inline __m512i fold(__m512i from, __m512i factors, __m512i onto) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(from, factors, 0x00),
                                   _mm512_clmulepi64_epi128(from, factors, 0x11), onto,
                                   kXorOfThree);
}

template <unsigned kBits>
[[VERBENA_VPCLMUL_512]] inline __m512i factors_512() {
  constexpr auto kLow = static_cast<long long>(fold_low(kBits));
  constexpr auto kHigh = static_cast<long long>(fold_high(kBits));
  return _mm512_set4_epi64(kHigh, kLow, kHigh, kLow);
}

[[VERBENA_VPCLMUL_512]] inline __m512i take_512(std::byte*& to, const std::byte*& from) {
  const __m512i bytes = _mm512_loadu_si512(from);
  _mm512_storeu_si512(to, bytes);
  to += sizeof bytes;
  from += sizeof bytes;
  return bytes;
}

[[VERBENA_VPCLMUL_512]] std::uint32_t copy_by_64(std::uint32_t state, ConstBytes head,
                                                 std::byte* to, const std::byte* from,
                                                 std::size_t size) {
  constexpr std::size_t kWide = 64;
  constexpr std::size_t kStep = 4 * kWide;
  if (size < kStep) return copy_by_16(state, head, to, from, size);
  const Beginning begin = beginning(state, head);
  const __m128i before = fold(begin.block, factors<128>(), begin.added);
  __m512i a = _mm512_xor_si512(_mm512_zextsi128_si512(before), take_512(to, from));
  __m512i b = take_512(to, from);
  __m512i c = take_512(to, from);
  __m512i d = take_512(to, from);
  const __m512i far = factors_512<8 * kStep>();
  for (size -= kStep; size >= kStep; size -= kStep) {
    expect_to_write<kStep>(to);
    a = fold(a, far, take_512(to, from));
    b = fold(b, far, take_512(to, from));
    c = fold(c, far, take_512(to, from));
    d = fold(d, far, take_512(to, from));
  }
  const __m512i near = factors_512<8 * kWide>();
  a = fold(fold(fold(a, near, b), near, c), near, d);
  for (; size >= kWide; size -= kWide) a = fold(a, near, take_512(to, from));
  alignas(kWide) __m128i parts[kWide / kBlock];
  _mm512_store_si512(parts, a);
  __m128i last = fold(parts[2], factors<128>(), parts[3]);
  last = fold(parts[1], factors<256>(), last);
  last = fold(parts[0], factors<384>(), last);
  return finish(last, to, from, size);
}

#endif

}  // namespace

// Made when it is asked for first: somebody's constructor may be earlier than this file's.
std::span<const CopyCrc> copy_crc_ways() {
  static const std::array ways{
#if defined(__x86_64__)
      CopyCrc{.name = "VPCLMULQDQ, 512 bits",
              .usable = __builtin_cpu_supports("vpclmulqdq") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("pclmul"),
              .copy = copy_by_64,
              .crc = crc_by_16},
      CopyCrc{.name = "VPCLMULQDQ, 256 bits",
              .usable = __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2") &&
                        __builtin_cpu_supports("pclmul"),
              .copy = copy_by_32,
              .crc = crc_by_16},
      CopyCrc{.name = "PCLMULQDQ",
              .usable = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"),
              .copy = copy_by_16,
              .crc = crc_by_16},
#endif
      CopyCrc{.name = "isa-l", .usable = true, .copy = copy_plainly, .crc = isal_crc32},
  };
  return ways;
}

namespace {

const CopyCrc& best_way() { return *std::ranges::find_if(copy_crc_ways(), &CopyCrc::usable); }

// The best ones, found at the first call.
std::uint32_t find_crc(std::uint32_t state, const std::byte* from, std::size_t size);
std::uint32_t find_copy(std::uint32_t state, ConstBytes head, std::byte* to, const std::byte* from,
                        std::size_t size);
constinit std::atomic<decltype(CopyCrc::crc)> crc_way = find_crc;
constinit std::atomic<decltype(CopyCrc::copy)> copy_way = find_copy;

std::uint32_t find_crc(std::uint32_t state, const std::byte* from, std::size_t size) {
  const auto best = best_way().crc;
  crc_way.store(best, std::memory_order_relaxed);
  return best(state, from, size);
}

std::uint32_t find_copy(std::uint32_t state, ConstBytes head, std::byte* to, const std::byte* from,
                        std::size_t size) {
  const auto best = best_way().copy;
  copy_way.store(best, std::memory_order_relaxed);
  return best(state, head, to, from, size);
}

}  // namespace

std::uint32_t crc32(std::uint32_t state, ConstBytes bytes) {
  return crc_way.load(std::memory_order_relaxed)(state, bytes.data(), bytes.size());
}

std::uint32_t copy_crc32(std::uint32_t state, ConstBytes head, std::byte* to, const std::byte* from,
                         std::size_t size) {
  return copy_way.load(std::memory_order_relaxed)(state, head, to, from, size);
}

}  // namespace verbena::wire
