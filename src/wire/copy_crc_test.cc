// SPDX-License-Identifier: Apache-2.0
#include "wire/copy_crc.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/random.h"

namespace verbena::wire {
namespace {

std::uint32_t oracle(std::uint32_t state, ConstBytes bytes) {
  if (bytes.empty()) return state;  // zlib takes a null pointer for "begin"
  return static_cast<std::uint32_t>(::crc32(state, reinterpret_cast<const Bytef*>(bytes.data()),
                                            static_cast<uInt>(bytes.size())));
}

std::vector<std::byte> random_bytes(Random& random, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

constexpr std::byte kUntouched{0xA5};

/// Copies from and to places of any alignment, between bytes that must stay.
void expect_right(const CopyCrc& way, Random& random, std::size_t head_size, std::size_t size) {
  constexpr std::size_t kAround = 64;
  const auto state = static_cast<std::uint32_t>(random.next());
  const auto head = random_bytes(random, head_size);
  const auto from = random_bytes(random, size + kAround);
  std::vector<std::byte> to(size + 2 * kAround, kUntouched);
  const std::size_t from_at = random.below(kAround);
  const std::size_t to_at = random.below(kAround);
  const ConstBytes bytes = ConstBytes(from).subspan(from_at, size);
  const std::uint32_t crc = way.copy(state, head, to.data() + to_at, bytes.data(), size);
  EXPECT_EQ(crc, oracle(oracle(state, head), bytes)) << way.name << ' ' << head_size << ' ' << size;
  std::vector<std::byte> expected(to.size(), kUntouched);
  std::ranges::copy(bytes, expected.begin() + static_cast<std::ptrdiff_t>(to_at));
  EXPECT_EQ(to, expected) << way.name << ' ' << head_size << ' ' << size;
}

TEST(CopyCrc, EveryWayCopiesAndGivesTheCrc) {
  Random random(1);
  for (const CopyCrc& way : copy_crc_ways()) {
    if (!way.usable) {
      std::printf("this processor has no %s\n", way.name);
      continue;
    }
    for (std::size_t size = 0; size < 700; ++size) expect_right(way, random, size % 33, size);
    for (std::size_t head = 0; head <= 60; ++head) expect_right(way, random, head, 1024);
    for (const std::size_t size : {1000UL, 1024UL, 4095UL, 4096UL, 4097UL, 65536UL, 1048576UL})
      expect_right(way, random, 12, size);
  }
}

TEST(CopyCrc, EveryWayGivesTheCrcOfWhatIsNotCopied) {
  Random random(3);
  for (const CopyCrc& way : copy_crc_ways()) {
    if (!way.usable) continue;
    for (std::size_t size = 0; size < 400; ++size) {
      // Nothing may be looked at behind the end: a sanitizer would find it.
      const auto from = random_bytes(random, size);
      const auto state = static_cast<std::uint32_t>(random.next());
      EXPECT_EQ(way.crc(state, from.data(), size), oracle(state, from)) << way.name << ' ' << size;
    }
  }
}

TEST(CopyCrc, TheBestWayIsOneOfThem) {
  Random random(2);
  const auto from = random_bytes(random, 4096);
  std::vector<std::byte> to(from.size());
  EXPECT_EQ(copy_crc32(0, {}, to.data(), from.data(), from.size()), oracle(0, from));
  EXPECT_EQ(to, from);
  EXPECT_EQ(crc32(7, from), oracle(7, from));
}

}  // namespace
}  // namespace verbena::wire
