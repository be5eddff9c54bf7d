// SPDX-License-Identifier: Apache-2.0
#include "wire/packet.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "wire/test_support.h"

namespace verbena::wire {
namespace {

/// A packet of this opcode with random bits wherever they are allowed, as bytes.
std::vector<std::byte> random_datagram(Random& random, Opcode opcode, std::size_t payload_size) {
  const std::size_t pad = (0 - payload_size) & 3U;
  std::vector<std::byte> bytes =
      test::random_bytes(random, info(opcode).header_size + payload_size + pad + kIcrcSize);
  bytes[0] = static_cast<std::byte>(opcode);
  bytes[1] = (bytes[1] & std::byte{0xC0}) | static_cast<std::byte>(pad << 4);
  std::fill_n(bytes.end() - static_cast<std::ptrdiff_t>(kIcrcSize + pad), pad, std::byte{0});
  return bytes;
}

std::vector<Opcode> known_opcodes() {
  std::vector<Opcode> opcodes;
  for (unsigned value = 0; value < 256; ++value) {
    if (info(static_cast<Opcode>(value)).known) opcodes.push_back(static_cast<Opcode>(value));
  }
  return opcodes;
}

class EachOpcode : public testing::TestWithParam<Opcode> {};

TEST_P(EachOpcode, ParsesAndEncodesToTheSameBytes) {
  Random random(static_cast<std::uint64_t>(GetParam()));
  const OpcodeInfo& row = info(GetParam());
  for (std::size_t payload_size = 0; payload_size <= (row.has_payload ? 40U : 0U); ++payload_size) {
    const std::vector<std::byte> in = random_datagram(random, GetParam(), payload_size);
    const auto packet = parse(in);
    ASSERT_TRUE(packet) << to_string(packet.error());
    EXPECT_EQ(packet->bth.opcode, GetParam());
    EXPECT_EQ(packet->payload.size(), payload_size);
    EXPECT_TRUE(payload_size == 0 || packet->payload.data() == in.data() + row.header_size);
    ASSERT_EQ(encoded_size(*packet), in.size());
    std::vector<std::byte> out(in.size(), std::byte{0xA5});
    encode(*packet, out);
    EXPECT_EQ(in, out);
    EXPECT_EQ(encode_headers(*packet, out.data()), row.header_size);
    EXPECT_LE(row.header_size, kMaxHeaderSize);
  }
}

TEST_P(EachOpcode, OneOfTheSameKindIsParsedAsAnother) {
  Random random(3);
  const std::size_t payload_size = info(GetParam()).has_payload ? 13 : 0;
  const std::vector<std::byte> first = random_datagram(random, GetParam(), payload_size);
  std::vector<std::byte> second = random_datagram(random, GetParam(), payload_size);
  std::copy_n(first.begin(), kKindSize, second.begin());
  auto packet = parse(first);
  ASSERT_TRUE(packet);
  parse_same_kind(second, *packet);
  EXPECT_EQ(packet->bth, parse(second).value().bth);
  EXPECT_EQ(packet->payload.data(), parse(second).value().payload.data());
  std::vector<std::byte> out(second.size());
  encode(*packet, out);
  EXPECT_EQ(out, second);
}

TEST_P(EachOpcode, InShortOnlyWhatIsPlain) {
  Random random(5);
  const bool plain = GetParam() == Opcode::kRcSendOnly || GetParam() == Opcode::kRcWriteOnly;
  Packet taken;
  for (std::size_t payload_size = 0; payload_size <= (info(GetParam()).has_payload ? 9U : 0U);
       ++payload_size) {
    const std::vector<std::byte> in = random_datagram(random, GetParam(), payload_size);
    ASSERT_EQ(parse_plain(in, taken), plain);
    if (!plain) continue;
    const Packet whole = parse(in).value();
    EXPECT_EQ(taken.bth.opcode, whole.bth.opcode);
    EXPECT_EQ(taken.bth.solicited, whole.bth.solicited);
    EXPECT_EQ(taken.bth.pad_count, whole.bth.pad_count);
    EXPECT_EQ(taken.bth.pkey, whole.bth.pkey);
    EXPECT_EQ(taken.bth.destination_qp, whole.bth.destination_qp);
    EXPECT_EQ(taken.bth.ack_request, whole.bth.ack_request);
    EXPECT_EQ(taken.bth.psn, whole.bth.psn);
    EXPECT_EQ(taken.icrc, whole.icrc);
    EXPECT_EQ(taken.payload.data(), whole.payload.data());
    EXPECT_EQ(taken.payload.size(), whole.payload.size());
    if (GetParam() == Opcode::kRcWriteOnly) {
      EXPECT_EQ(taken.reth, whole.reth);
    }
    for (std::size_t size = 0; size < in.size(); ++size) {
      const std::vector<std::byte> cut(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(parse_plain(cut, taken), parse(cut).has_value()) << size;
    }
  }
}

TEST_P(EachOpcode, IsRefusedAtEveryLengthThatIsTooShort) {
  Random random(7);
  const OpcodeInfo& row = info(GetParam());
  const std::vector<std::byte> whole = random_datagram(random, GetParam(), row.has_payload ? 7 : 0);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // Its own allocation, so that the address sanitizer sees a read behind the end.
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto packet = parse(cut);
    if (packet) {
      // What is left by chance: fewer payload words, with at least the pad in them.
      EXPECT_TRUE(row.has_payload);
      EXPECT_EQ(packet->payload.size() + packet->bth.pad_count + row.header_size + kIcrcSize, size);
    } else if (size < row.header_size + kIcrcSize) {
      EXPECT_EQ(packet.error(), ParseError::kTruncated) << size;
    } else {
      EXPECT_EQ(packet.error(), ParseError::kBadPad) << size;
    }
  }
}

TEST_P(EachOpcode, RefusesPayloadWhereThereIsNone) {
  Random random(8);
  const OpcodeInfo& row = info(GetParam());
  std::vector<std::byte> bytes = random_datagram(random, GetParam(), 0);
  bytes.resize(bytes.size() + 4);
  const auto packet = parse(bytes);
  ASSERT_EQ(packet.has_value(), row.has_payload);
  if (!packet) {
    EXPECT_EQ(packet.error(), ParseError::kUnexpectedPayload);
  }
}

TEST_P(EachOpcode, RefusesPadWithoutPayload) {
  Random random(9);
  std::vector<std::byte> bytes = random_datagram(random, GetParam(), 0);
  for (unsigned pad = 1; pad <= 3; ++pad) {
    bytes[1] = (bytes[1] & std::byte{0xCF}) | static_cast<std::byte>(pad << 4);
    const auto packet = parse(bytes);
    ASSERT_FALSE(packet);
    EXPECT_EQ(packet.error(), ParseError::kBadPad);
  }
}

TEST_P(EachOpcode, RefusesOtherVersions) {
  Random random(10);
  std::vector<std::byte> bytes = random_datagram(random, GetParam(), 0);
  for (unsigned version = 1; version < 16; ++version) {
    bytes[1] = (bytes[1] & std::byte{0xF0}) | static_cast<std::byte>(version);
    const auto packet = parse(bytes);
    ASSERT_FALSE(packet);
    EXPECT_EQ(packet.error(), ParseError::kBadVersion);
  }
}

TEST_P(EachOpcode, IsOneReadableLine) {
  Random random(11);
  const std::vector<std::byte> bytes = random_datagram(random, GetParam(), 0);
  const std::string line = to_string(parse(bytes).value());
  EXPECT_TRUE(line.starts_with(info(GetParam()).name)) << line;
  EXPECT_TRUE(std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; })) << line;
}

INSTANTIATE_TEST_SUITE_P(All, EachOpcode, testing::ValuesIn(known_opcodes()));

TEST(Packet, UnknownOpcodesAreRefused) {
  for (unsigned value = 0; value < 256; ++value) {
    if (info(static_cast<Opcode>(value)).known) continue;
    std::vector<std::byte> bytes(64);
    bytes[0] = static_cast<std::byte>(value);
    const auto packet = parse(bytes);
    ASSERT_FALSE(packet);
    EXPECT_EQ(packet.error(), ParseError::kUnknownOpcode);
  }
}

TEST(Packet, TheHeadersOfAnOpcodeStandInOrder) {
  // XRC WRITE ONLY with immediate: BTH, XRCETH, RETH, immediate, payload, pad, ICRC.
  const auto bytes = test::from_hex(
      "ab 50 ffff 00 000012 80 000abc  00 000034  0000000000001000 00000056 00000003  cafebabe  "
      "010203 00  78563412");
  const Packet packet = parse(bytes).value();
  EXPECT_EQ(packet.bth.opcode, Opcode::kXrcWriteOnlyImm);
  EXPECT_EQ(packet.bth.destination_qp, 0x12U);
  EXPECT_TRUE(packet.bth.ack_request);
  EXPECT_EQ(packet.bth.psn, 0xABCU);
  EXPECT_EQ(packet.xrceth.srq_number, 0x34U);
  EXPECT_EQ(packet.reth, (Reth{.address = 0x1000, .rkey = 0x56, .dma_length = 3}));
  EXPECT_EQ(packet.immediate.value, 0xCAFEBABE);
  EXPECT_EQ(packet.payload.size(), 3U);
  EXPECT_EQ(packet.icrc, 0x12345678U);
}

std::string line_of(std::string_view hex) { return to_string(parse(test::from_hex(hex)).value()); }

TEST(Packet, Lines) {
  EXPECT_EQ(
      line_of("06 40 ffff 00000012 00001267 00007f0000001000 00000101 00002000 00000000 00000000"),
      "RC WRITE FIRST qpn 0x000012 psn 4711 va 0x7f0000001000 rkey 0x101 len 8192 +4");
  EXPECT_EQ(line_of("11 40 ffff 00000011 00000005 1f000003 00000000"),
            "RC ACK qpn 0x000011 psn 5 msn 3");
  EXPECT_EQ(line_of("11 40 ffff 00000011 00000005 04000003 00000000"),
            "RC ACK qpn 0x000011 psn 5 credits 4 msn 3");
  EXPECT_EQ(line_of("11 40 ffff 00000011 00000005 2c000003 00000000"),
            "RC ACK qpn 0x000011 psn 5 rnr-nak timer 12 msn 3");
  EXPECT_EQ(line_of("11 40 ffff 00000011 00000005 60000003 00000000"),
            "RC ACK qpn 0x000011 psn 5 nak 0 (sequence error) msn 3");
  EXPECT_EQ(line_of("65 b0 8001 00000001 80000005 80010000 00000022 00000007 aa000000 00000000"),
            "UD SEND ONLY IMM qpn 0x000001 psn 5 pkey 0x8001 ackreq solicited not-migreq from "
            "0x000022 qkey 0x80010000 "
            "imm 0x00000007 +1");
  EXPECT_EQ(line_of("14 40 ffff 00000011 80000005 0000000000001000 00000101 0000000000000007 "
                    "0000000000000000 00000000"),
            "RC FETCH ADD qpn 0x000011 psn 5 ackreq va 0x1000 rkey 0x101 add 7");
  EXPECT_EQ(line_of("13 40 ffff 00000011 80000005 0000000000001000 00000101 0000000000000007 "
                    "0000000000000010 00000000"),
            "RC COMPARE SWAP qpn 0x000011 psn 5 ackreq va 0x1000 rkey 0x101 compare 0x10 swap 0x7");
  EXPECT_EQ(line_of("12 40 ffff 00000011 00000005 1f000003 0000000000000010 00000000"),
            "RC ATOMIC ACK qpn 0x000011 psn 5 msn 3 original 0x10");
  EXPECT_EQ(line_of("17 40 ffff 00000011 00000005 00000101 00000000"),
            "RC SEND ONLY INV qpn 0x000011 psn 5 inv-rkey 0x101 +0");
  EXPECT_EQ(line_of("81 40 ffff c0000011 00000000 00000000000000000000000000000000 00000000"),
            "CNP qpn 0x000011 psn 0 fecn becn");
  EXPECT_EQ(to_string(Packet{.bth = {.opcode = static_cast<Opcode>(0xFF)}}),
            "opcode 0xff qpn 0x000000 psn 0");
}

TEST(Packet, EveryErrorHasAName) {
  for (const ParseError error :
       {ParseError::kTruncated, ParseError::kUnknownOpcode, ParseError::kBadVersion,
        ParseError::kBadPad, ParseError::kUnexpectedPayload}) {
    EXPECT_NE(to_string(error), "unknown error");
  }
  EXPECT_EQ(to_string(static_cast<ParseError>(99)), "unknown error");
}

}  // namespace
}  // namespace verbena::wire
