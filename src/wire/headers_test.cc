// SPDX-License-Identifier: Apache-2.0
#include "wire/headers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "wire/test_support.h"

namespace verbena::wire {
namespace {

template <typename Header>
class Headers : public testing::Test {};
using All =
    testing::Types<Bth, Reth, Feth, Aeth, AtomicEth, AtomicAckEth, Deth, ImmDt, Ieth, XrcEth, Cnp>;
TYPED_TEST_SUITE(Headers, All);

TYPED_TEST(Headers, AnyBitsComeOutAsTheyWentIn) {
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    const std::vector<std::byte> in = test::random_bytes(random, TypeParam::kSize);
    const TypeParam header = TypeParam::parse(in.data());
    std::array<std::byte, TypeParam::kSize + 1> out;
    out.fill(std::byte{0xA5});
    header.encode(out.data());
    ASSERT_TRUE(std::equal(in.begin(), in.end(), out.begin()));
    ASSERT_EQ(out.back(), std::byte{0xA5});
    ASSERT_EQ(TypeParam::parse(out.data()), header);
  }
}

TYPED_TEST(Headers, EveryBitIsInTheValue) {
  Random random(2);
  std::vector<std::byte> bytes = test::random_bytes(random, TypeParam::kSize);
  const TypeParam header = TypeParam::parse(bytes.data());
  for (std::size_t bit = 0; bit < 8 * TypeParam::kSize; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(TypeParam::parse(bytes.data()), header) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

template <typename Header>
void expect_bytes(const Header& header, std::string_view hex) {
  std::array<std::byte, Header::kSize> bytes{};
  header.encode(bytes.data());
  const std::vector<std::byte> expected = test::from_hex(hex);
  ASSERT_EQ(expected.size(), bytes.size());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin())) << hex;
}

constexpr Bth kZeroBth{.migration = false, .pkey = 0};

template <typename Change>
Bth bth_with(Change change) {
  Bth bth = kZeroBth;
  change(bth);
  return bth;
}

TEST(BthLayout, EachFieldStandsWhereTheWireHasIt) {
  expect_bytes(kZeroBth, "00000000 00000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.opcode = Opcode::kXrcSendOnlyInv; }),
               "b7000000 00000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.solicited = true; }), "00800000 00000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.migration = true; }), "00400000 00000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.pad_count = 3; }), "00300000 00000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.version = 15; }), "000f0000 00000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.pkey = 0x1234; }), "00001234 00000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.fecn = true; }), "00000000 80000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.becn = true; }), "00000000 40000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.reserved6 = 0x3F; }), "00000000 3f000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.destination_qp = 0x123456; }), "00000000 00123456 00000000");
  expect_bytes(bth_with([](Bth& b) { b.ack_request = true; }), "00000000 00000000 80000000");
  expect_bytes(bth_with([](Bth& b) { b.reserved7 = 0x7F; }), "00000000 00000000 7f000000");
  expect_bytes(bth_with([](Bth& b) { b.psn = 0xABCDEF; }), "00000000 00000000 00abcdef");
}

TEST(BthLayout, AFieldThatIsTooWideSpillsNowhere) {
  expect_bytes(bth_with([](Bth& b) { b.pad_count = 0xFF; }), "00300000 00000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.version = 0xFF; }), "000f0000 00000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.reserved6 = 0xFF; }), "00000000 3f000000 00000000");
  expect_bytes(bth_with([](Bth& b) { b.destination_qp = 0xFF123456; }),
               "00000000 00123456 00000000");
  expect_bytes(bth_with([](Bth& b) { b.reserved7 = 0xFF; }), "00000000 00000000 7f000000");
  expect_bytes(bth_with([](Bth& b) { b.psn = 0xFFABCDEF; }), "00000000 00000000 00abcdef");
  expect_bytes(Aeth{.reserved = 0xFF, .kind = Aeth::Kind::kAck, .value = 0, .msn = 0}, "80000000");
  expect_bytes(Aeth{.reserved = 0, .kind = Aeth::Kind::kAck, .value = 0xFF, .msn = 0xFF000001},
               "1f000001");
}

TEST(HeaderLayout, EachFieldStandsWhereTheWireHasIt) {
  expect_bytes(Reth{.address = 0x0102030405060708, .rkey = 0x090A0B0C, .dma_length = 0x0D0E0F10},
               "0102030405060708 090a0b0c 0d0e0f10");
  expect_bytes(Feth{.reserved = 0, .selectivity = 1, .placement = 2}, "00000012");
  expect_bytes(Feth{.reserved = 0x3FFFFFF, .selectivity = 0, .placement = 0}, "ffffffc0");
  expect_bytes(Feth{.reserved = 0, .selectivity = 0xFF, .placement = 0xFF}, "0000003f");
  expect_bytes(Aeth{}, "1f000000");
  expect_bytes(Aeth{.kind = Aeth::Kind::kRnrNak, .value = 12, .msn = 0x010203}, "2c010203");
  expect_bytes(Aeth{.kind = Aeth::Kind::kNak, .value = 2, .msn = 0xFFFFFF}, "62ffffff");
  expect_bytes(AtomicEth{.address = 0x0102030405060708,
                         .rkey = 0x090A0B0C,
                         .swap_or_add = 0x1112131415161718,
                         .compare = 0x2122232425262728},
               "0102030405060708 090a0b0c 1112131415161718 2122232425262728");
  expect_bytes(AtomicAckEth{.original = 0x0102030405060708}, "0102030405060708");
  expect_bytes(Deth{.qkey = 0x80010000, .reserved = 0x55, .source_qp = 0x010203},
               "80010000 55010203");
  expect_bytes(ImmDt{.value = 0x01020304}, "01020304");
  expect_bytes(Ieth{.rkey = 0x01020304}, "01020304");
  expect_bytes(XrcEth{.reserved = 0x55, .srq_number = 0x010203}, "55010203");
}

}  // namespace
}  // namespace verbena::wire
