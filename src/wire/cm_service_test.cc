// SPDX-License-Identifier: Apache-2.0
#include "wire/cm_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "wire/test_support.h"

namespace verbena::wire {
namespace {

TEST(CmService, APortIsAServiceIdOfItsSpace) {
  EXPECT_EQ(service_id(PortSpace::kIpoib, 1), 0x0000000000020001U);
  EXPECT_EQ(service_id(PortSpace::kTcp, 7174), 0x0000000001061C06U);
  EXPECT_EQ(service_id(PortSpace::kUdp, 0xFFFF), 0x000000000111FFFFU);
  EXPECT_EQ(service_id(PortSpace::kIb, 0), 0x00000000013F0000U);
}

TEST(CmService, AServiceIdOfASpaceIsAPort) {
  for (const PortSpace space :
       {PortSpace::kIpoib, PortSpace::kTcp, PortSpace::kUdp, PortSpace::kIb}) {
    for (const std::uint16_t port : std::to_array<std::uint16_t>({0, 1, 7174, 0x8000, 0xFFFF}))
      EXPECT_EQ(service_port(service_id(space, port)), (ServicePort{space, port}));
  }
}

TEST(CmService, OtherServiceIdsAreNoPorts) {
  EXPECT_FALSE(service_port(0));
  EXPECT_FALSE(service_port(7174));
  EXPECT_FALSE(service_port(~std::uint64_t{0}));
  EXPECT_FALSE(service_port(0x0000000001051C06));
  EXPECT_FALSE(service_port(0x0000000001071C06));
  for (unsigned bit = 32; bit < 64; ++bit)
    EXPECT_FALSE(service_port(service_id(PortSpace::kTcp, 7174) | std::uint64_t{1} << bit)) << bit;
}

/// Bytes of a header, followed by one that must stay.
std::array<std::byte, CmAddressHeader::kSize + 1> encoded(const CmAddressHeader& header) {
  std::array<std::byte, CmAddressHeader::kSize + 1> bytes;
  bytes.fill(std::byte{0xA5});
  header.encode(bytes.data());
  return bytes;
}

void expect_bytes(const CmAddressHeader& header, std::string_view hex) {
  std::vector<std::byte> expected = test::from_hex(hex);
  expected.push_back(std::byte{0xA5});
  EXPECT_TRUE(std::ranges::equal(encoded(header), expected)) << hex;
  EXPECT_EQ(CmAddressHeader::parse(expected.data()), header) << hex;
}

Address address(std::string_view text) { return Address::from_string(text).value(); }

TEST(CmAddressHeader, Ipv4StandsInTheLastFourBytesBehindZeroes) {
  expect_bytes(
      {.source_port = 0xB7B7, .source = address("10.77.0.2"), .destination = address("10.77.0.1")},
      "00 40 b7b7 000000000000000000000000 0a4d0002 000000000000000000000000 0a4d0001");
}

TEST(CmAddressHeader, Ipv6StandsInAllSixteen) {
  expect_bytes(
      {.source_port = 1, .source = address("fe80::1:2"), .destination = address("2001:db8::ff")},
      "00 60 0001 fe800000000000000000000000010002 20010db80000000000000000000000ff");
}

TEST(CmAddressHeader, OneMappedAddressAloneIsIpv6) {
  expect_bytes(
      {.source_port = 1, .source = address("10.77.0.2"), .destination = address("2001:db8::ff")},
      "00 60 0001 00000000000000000000ffff0a4d0002 20010db80000000000000000000000ff");
  expect_bytes(
      {.source_port = 1, .source = address("2001:db8::ff"), .destination = address("10.77.0.2")},
      "00 60 0001 20010db80000000000000000000000ff 00000000000000000000ffff0a4d0002");
}

TEST(CmAddressHeader, OtherVersionsAreNone) {
  std::vector<std::byte> bytes(CmAddressHeader::kSize);
  for (unsigned version = 0; version < 256; ++version) {
    bytes[0] = static_cast<std::byte>(version);
    bytes[1] = std::byte{0x40};
    EXPECT_EQ(CmAddressHeader::parse(bytes.data()).has_value(), version == 0) << version;
  }
  bytes[0] = std::byte{0};
  for (unsigned ip = 0; ip < 256; ++ip) {
    bytes[1] = static_cast<std::byte>(ip);
    EXPECT_EQ(CmAddressHeader::parse(bytes.data()).has_value(), ip >> 4 == 4 || ip >> 4 == 6) << ip;
  }
}

TEST(CmAddressHeader, WhatStandsBeforeAnIpv4AddressIsNotLookedAt) {
  Random random(1);
  std::vector<std::byte> bytes = test::random_bytes(random, CmAddressHeader::kSize);
  bytes[0] = std::byte{0};
  bytes[1] = std::byte{0x4F};
  const CmAddressHeader header = CmAddressHeader::parse(bytes.data()).value();
  EXPECT_EQ(header.source.ipv4(), load_be<std::uint32_t>(bytes.data() + 16));
  EXPECT_EQ(header.destination.ipv4(), load_be<std::uint32_t>(bytes.data() + 32));
  EXPECT_EQ(CmAddressHeader::parse(encoded(header).data()), header);
}

}  // namespace
}  // namespace verbena::wire
