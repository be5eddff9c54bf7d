// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "wire/ip_udp.h"
#include "wire/test_support.h"

namespace verbena::wire {
namespace {

std::vector<std::byte> to_bytes(const Frame& frame) {
  std::vector<std::byte> bytes(kMaxFrameHeaderSize);
  bytes.resize(encode_frame_headers(frame, bytes.data()));
  bytes.insert(bytes.end(), frame.udp_payload.begin(), frame.udp_payload.end());
  return bytes;
}

enum class Kind : std::uint8_t { kIpv4, kIpv6, kRoceV1 };

Frame random_frame(Random& random, Kind kind, ConstBytes payload) {
  const bool ipv4 = kind == Kind::kIpv4;
  Frame frame{
      .path = test::random_path(random, ipv4 || (kind == Kind::kRoceV1 && random.below(2) == 0)),
      .identification = ipv4 ? static_cast<std::uint16_t>(random.next()) : std::uint16_t{0},
      .udp_checksum = static_cast<std::uint16_t>(random.next()),
      .udp_payload = payload};
  if (kind == Kind::kRoceV1) {
    frame.path.roce_v1 = true;
    frame.path.source_port = frame.udp_checksum = 0;
  }
  std::ranges::copy(test::random_bytes(random, 6), frame.destination_mac.begin());
  std::ranges::copy(test::random_bytes(random, 6), frame.source_mac.begin());
  return frame;
}

void expect_same(const Frame& a, const Frame& b) {
  EXPECT_EQ(a.destination_mac, b.destination_mac);
  EXPECT_EQ(a.source_mac, b.source_mac);
  EXPECT_EQ(a.path, b.path);
  EXPECT_EQ(a.identification, b.identification);
  EXPECT_EQ(a.udp_checksum, b.udp_checksum);
  EXPECT_TRUE(std::ranges::equal(a.udp_payload, b.udp_payload));
}

class Frames : public testing::TestWithParam<Kind> {};

TEST_P(Frames, ComeOutAsTheyWentIn) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const auto payload = test::random_bytes(random, random.below(200));
    const Frame frame = random_frame(random, GetParam(), payload);
    std::vector<std::byte> bytes = to_bytes(frame);
    constexpr std::array<std::size_t, 3> kHeaders{42, 62, 54};
    EXPECT_EQ(bytes.size(), payload.size() + kHeaders.at(std::to_underlying(GetParam())));
    // A short frame is padded on an Ethernet; the IP header says where it ends.
    bytes.resize(bytes.size() + random.below(30), std::byte{0x77});
    const Result<Frame> parsed = parse_frame(bytes);
    ASSERT_TRUE(parsed) << parsed.error().message;
    expect_same(*parsed, frame);
  }
}

TEST_P(Frames, AreRefusedWhenTruncated) {
  Random random(2);
  const auto payload = test::random_bytes(random, 33);
  const std::vector<std::byte> whole = to_bytes(random_frame(random, GetParam(), payload));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> part(whole.begin(),
                                      whole.begin() + static_cast<std::ptrdiff_t>(size));
    const Result<Frame> parsed = parse_frame(part);
    ASSERT_FALSE(parsed) << size;
    EXPECT_EQ(parsed.error().condition, std::errc::bad_message);
  }
}

TEST_P(Frames, HoldTheLargestDatagram) {
  Random random(3);
  constexpr std::array kLargest{kMaxIpv4UdpPayloadSize, kMaxIpv6UdpPayloadSize, kMaxGrhPayloadSize};
  const auto payload = test::random_bytes(random, kLargest.at(std::to_underlying(GetParam())));
  const Frame frame = random_frame(random, GetParam(), payload);
  expect_same(parse_frame(to_bytes(frame)).value(), frame);
}

std::string kind_name(const testing::TestParamInfo<Kind>& kind) {
  constexpr std::array kNames{"Ipv4", "Ipv6", "RoceV1"};
  return kNames.at(std::to_underlying(kind.param));
}

INSTANTIATE_TEST_SUITE_P(AllKinds, Frames, testing::Values(Kind::kIpv4, Kind::kIpv6, Kind::kRoceV1),
                         kind_name);

/// Changes bytes of a good frame and makes its IPv4 checksum right again.
std::vector<std::byte> changed(Kind kind, std::size_t at, std::string_view hex) {
  Random random(4);
  static const std::vector<std::byte> payload(32);
  std::vector<std::byte> bytes = to_bytes(random_frame(random, kind, payload));
  std::ranges::copy(test::from_hex(hex), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  if (kind == Kind::kIpv4) {
    store_be(bytes.data() + 24, std::uint16_t{0});
    store_be(bytes.data() + 24, ipv4_checksum(bytes.data() + 14));
  }
  return bytes;
}

TEST(Frame, RefusesWhatIsNotRoce) {
  EXPECT_TRUE(parse_frame(changed(Kind::kIpv4, 0, "")));
  EXPECT_TRUE(parse_frame(changed(Kind::kIpv6, 0, "")));
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 12, "0806"))) << "ARP";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 12, "86dd"))) << "IPv4 behind the type of IPv6";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv6, 12, "0800"))) << "IPv6 behind the type of IPv4";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 14, "46"))) << "IP options";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 14, "44"))) << "IHL too short";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 16, "0013"))) << "total length within the header";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 16, "001b")))
      << "total length within the UDP header";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 20, "0000"))) << "no DF";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 20, "2000"))) << "more fragments";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 20, "4001"))) << "fragment offset";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 23, "06"))) << "TCP";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 36, "12b8"))) << "another port";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 38, "0027"))) << "UDP length short of IP's";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv4, 38, "0029"))) << "UDP length beyond IP's";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv6, 14, "45"))) << "version";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv6, 18, "0007")))
      << "payload length within the UDP header";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv6, 20, "00"))) << "extension headers";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv6, 22, "00000000 00000000 0000ffff 0a000001")))
      << "mapped source";
  EXPECT_FALSE(parse_frame(changed(Kind::kIpv6, 38, "00000000 00000000 0000ffff 0a000001")))
      << "mapped destination";
  EXPECT_TRUE(parse_frame(changed(Kind::kRoceV1, 0, "")));
  EXPECT_FALSE(parse_frame(changed(Kind::kRoceV1, 14, "45"))) << "version of the GRH";
  EXPECT_FALSE(parse_frame(changed(Kind::kRoceV1, 18, "0021"))) << "payload beyond the frame";
  EXPECT_FALSE(parse_frame(changed(Kind::kRoceV1, 20, "11"))) << "UDP behind a GRH";
  EXPECT_FALSE(parse_frame(changed(Kind::kRoceV1, 12, "86dd"))) << "a GRH behind the type of IPv6";
}

TEST(Frame, NoticesEveryWrongBitInAnIpv4Header) {
  std::vector<std::byte> bytes = changed(Kind::kIpv4, 0, "");
  for (std::size_t bit = std::size_t{8} * 14; bit < std::size_t{8} * 34; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(parse_frame(bytes)) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(Grh, HoldsTheIpHeader) {
  Path path{.source = Address::from_ipv4(0x0A000001),
            .destination = Address::from_ipv4(0x0A000002),
            .traffic_class = 4};
  const Grh ipv4 = make_grh(path, 0, 100);
  const auto expected4 = test::from_hex(
      "00000000 00000000 00000000 00000000 00000000  45040080 00004000 4011 2667 0a000001 "
      "0a000002");
  EXPECT_TRUE(std::ranges::equal(ipv4.bytes, expected4));
  path.source = Address::from_string("fe80::1").value();
  path.destination = Address::from_string("fe80::2").value();
  path.flow_label = 0x12345;
  const Grh ipv6 = make_grh(path, 0, 100);
  const auto expected6 = test::from_hex(
      "60412345 006c 11 40 fe800000000000000000000000000001 fe800000000000000000000000000002");
  EXPECT_TRUE(std::ranges::equal(ipv6.bytes, expected6));
}

}  // namespace
}  // namespace verbena::wire
