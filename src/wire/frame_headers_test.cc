// SPDX-License-Identifier: Apache-2.0
#include "wire/frame_headers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "wire/test_support.h"

namespace verbena::wire {
namespace {

using test::from_hex;

const std::string kEthernet = "0150561920a7 248a07a528c8 ";
const std::string kIpv4 = "45c00030 00004000 40110000 01010101 02020202 ";
const std::string kIpv6 =
    "6ab12345 0010 06 40 a0a100000000000000000000a2a3a4a5 b0b100000000000000000000b2b3b4b5 ";
const std::string kUdp = "04d2 162e 0008 0000 ";
const std::string kTcp = "04d2 162e 00000001 00000000 50000000 00000000 ";

std::optional<FrameHeaders> parse(const std::string& hex) {
  return FrameHeaders::parse(from_hex(hex));
}
std::vector<std::byte> fields(const std::string& hex, FrameLayer layer) {
  const auto headers = parse(hex);
  if (!headers) return {};
  const ConstBytes found = headers->fields(layer);
  return {found.begin(), found.end()};
}

TEST(FrameHeaders, FieldsAreInTheOrderOfTheFilters) {
  const std::string frame = kEthernet + "0800 " + kIpv4 + kUdp;
  EXPECT_EQ(fields(frame, FrameLayer::kEthernet), from_hex("0150561920a7 248a07a528c8 0800 0000"));
  EXPECT_EQ(fields(frame, FrameLayer::kIpv4), from_hex("01010101 02020202 11 c0 40 02"));
  EXPECT_EQ(fields(frame, FrameLayer::kUdp), from_hex("162e 04d2"));
  EXPECT_TRUE(fields(frame, FrameLayer::kTcp).empty());
  EXPECT_TRUE(fields(frame, FrameLayer::kIpv6).empty());
  EXPECT_TRUE(parse(frame)->multicast());
  EXPECT_FALSE(parse("0050561920a7 248a07a528c8 0800")->multicast());
}

TEST(FrameHeaders, Ipv6AndTcp) {
  const std::string frame = kEthernet + "86dd " + kIpv6 + kTcp;
  EXPECT_EQ(fields(frame, FrameLayer::kIpv6),
            from_hex("a0a100000000000000000000a2a3a4a5 b0b100000000000000000000b2b3b4b5"
                     "00012345 06 ab 40"));
  EXPECT_EQ(fields(frame, FrameLayer::kTcp), from_hex("162e 04d2"));
}

TEST(FrameHeaders, TagsAreReadAndPassed) {
  const std::string one = kEthernet + "8100 ac0c 0800 " + kIpv4 + kUdp;
  EXPECT_TRUE(parse(one)->tagged());
  EXPECT_EQ(fields(one, FrameLayer::kEthernet), from_hex("0150561920a7 248a07a528c8 0800 ac0c"));
  EXPECT_FALSE(fields(one, FrameLayer::kUdp).empty());
  const std::string two = kEthernet + "88a8 0001 8100 0002 0800 " + kIpv4;
  EXPECT_EQ(fields(two, FrameLayer::kEthernet), from_hex("0150561920a7 248a07a528c8 0800 0001"));
  EXPECT_FALSE(fields(two, FrameLayer::kIpv4).empty());
  const std::string three = kEthernet + "8100 0001 8100 0002 8100 0003 0800 " + kIpv4;
  EXPECT_TRUE(fields(three, FrameLayer::kIpv4).empty());
  EXPECT_FALSE(parse(kEthernet + "8100 ac")->tagged());  // cut within the tag
}

TEST(FrameHeaders, OnlyTheFirstFragmentHasPorts) {
  const std::string first = "45000030 00002000 40110000 01010101 02020202 ";
  const std::string later = "45000030 00002001 40110000 01010101 02020202 ";
  EXPECT_EQ(fields(kEthernet + "0800 " + first + kUdp, FrameLayer::kIpv4).back(), std::byte{4});
  EXPECT_FALSE(fields(kEthernet + "0800 " + first + kUdp, FrameLayer::kUdp).empty());
  EXPECT_TRUE(fields(kEthernet + "0800 " + later + kUdp, FrameLayer::kUdp).empty());
}

TEST(FrameHeaders, OptionsArePassed) {
  const std::string options = "46000030 00000000 40110000 01010101 02020202 01010101 ";
  EXPECT_EQ(fields(kEthernet + "0800 " + options + kUdp, FrameLayer::kUdp), from_hex("162e04d2"));
}

TEST(FrameHeaders, WhatIsCutOffOrNotWhatItSaysIsNotThere) {
  const auto whole = from_hex(kEthernet + "0800 " + kIpv4 + kUdp);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto headers = FrameHeaders::parse(std::span(whole).first(size));
    EXPECT_EQ(headers.has_value(), size >= kMinFrameSize);
    if (!headers) continue;
    EXPECT_EQ(headers->has(FrameLayer::kIpv4), size >= kMinFrameSize + 20);
    EXPECT_FALSE(headers->has(FrameLayer::kUdp));
  }
  const auto is_ipv4 = [](const std::string& first_byte) {
    return !fields(kEthernet + "0800 " + first_byte + kIpv4.substr(2), FrameLayer::kIpv4).empty();
  };
  EXPECT_TRUE(is_ipv4("45"));
  EXPECT_FALSE(is_ipv4("65"));  // another version
  EXPECT_FALSE(is_ipv4("44"));  // shorter than a header is
  EXPECT_FALSE(is_ipv4("4f"));  // longer than the frame
  EXPECT_TRUE(fields(kEthernet + "86dd 4" + kIpv6.substr(1), FrameLayer::kIpv6).empty());
  EXPECT_TRUE(fields(kEthernet + "86dd " + kIpv6 + kUdp, FrameLayer::kTcp).empty());
}

}  // namespace
}  // namespace verbena::wire
