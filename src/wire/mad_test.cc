// SPDX-License-Identifier: Apache-2.0
#include "wire/mad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "wire/test_support.h"

namespace verbena::wire {
namespace {

TEST(MadHeader, EachFieldStandsWhereTheWireHasIt) {
  const MadHeader header{.base_version = 0x01,
                         .management_class = 0x02,
                         .class_version = 0x03,
                         .method = 0x04,
                         .status = 0x0506,
                         .class_specific = 0x0708,
                         .transaction = 0x090A0B0C0D0E0F10,
                         .attribute = 0x1112,
                         .reserved = 0x1314,
                         .attribute_modifier = 0x15161718};
  std::array<std::byte, MadHeader::kSize> bytes{};
  header.encode(bytes.data());
  EXPECT_TRUE(std::ranges::equal(
      bytes, test::from_hex("01 02 03 04 0506 0708 090a0b0c0d0e0f10 1112 1314 15161718")));
}

TEST(MadHeader, AnyBitsComeOutAsTheyWentIn) {
  Random random(1);
  for (int round = 0; round < 1000; ++round) {
    const std::vector<std::byte> in = test::random_bytes(random, MadHeader::kSize);
    const MadHeader header = MadHeader::parse(in.data());
    std::array<std::byte, MadHeader::kSize + 1> out;
    out.fill(std::byte{0xA5});
    header.encode(out.data());
    ASSERT_TRUE(std::equal(in.begin(), in.end(), out.begin()));
    ASSERT_EQ(out.back(), std::byte{0xA5});
    ASSERT_EQ(MadHeader::parse(out.data()), header);
  }
}

}  // namespace
}  // namespace verbena::wire
