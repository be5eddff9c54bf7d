// SPDX-License-Identifier: Apache-2.0
#include "wire/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace verbena::wire {
namespace {

constexpr std::size_t kRoom = 64 << 10;
constexpr std::byte kUntouched{0xEE};

std::vector<std::byte> numbered() {
  std::vector<std::byte> bytes(kRoom);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

/// Each size and alignment copies those bytes, and writes nothing beside them.
template <typename Copy>
void expect_exact(Copy copy) {
  const std::vector<std::byte> from = numbered();
  constexpr std::array<std::size_t, 14> kSizes = {0,   1,   63,   64,   65,   127,        511,
                                                  512, 513, 1024, 4096, 6001, (32 << 10), 40'001};
  std::vector<std::byte> room(kRoom);
  for (const std::size_t size : kSizes) {
    const std::span<std::byte> to(room.data(), size + 2 * 70);
    for (std::size_t to_offset = 0; to_offset < 70; ++to_offset) {
      for (const std::size_t from_offset : {0U, 1U, 20U, 32U, 63U}) {
        std::ranges::fill(to, kUntouched);
        copy(to.data() + to_offset, from.data() + from_offset, size);
        const auto begin = to.begin() + static_cast<std::ptrdiff_t>(to_offset);
        const auto end = begin + static_cast<std::ptrdiff_t>(size);
        ASSERT_TRUE(std::equal(begin, end, from.begin() + static_cast<std::ptrdiff_t>(from_offset)))
            << size << " bytes from +" << from_offset << " to +" << to_offset;
        const auto touched = [](std::byte byte) { return byte != kUntouched; };
        ASSERT_TRUE(std::none_of(to.begin(), begin, touched)) << size << " to +" << to_offset;
        ASSERT_TRUE(std::none_of(end, to.end(), touched)) << size << " to +" << to_offset;
      }
    }
  }
}

TEST(CopyBytes, AreThoseAndNoMore) { expect_exact(copy_bytes); }
TEST(CopyBytes, InWholeLines) { expect_exact(copy_long); }
TEST(CopyBytes, InPieces) { expect_exact(copy_in_pieces); }

}  // namespace
}  // namespace verbena::wire
