// SPDX-License-Identifier: Apache-2.0
//
// Every packet of every capture in tests/vectors, which Linux's own software RoCE sent, goes
// through this room and comes out the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/packet.h"
#include "wire/pcap.h"
#include "wire/test_support.h"

namespace verbena::wire {
namespace {

std::vector<std::string> captures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(VERBENA_VECTORS)) {
    if (entry.path().extension() == ".pcap") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

/// Neighbour discovery, which precedes the first IPv6 packet on an Ethernet and is none of ours.
bool is_icmpv6(ConstBytes frame) {
  return frame.size() > 20 && load_be<std::uint16_t>(frame.data() + 12) == 0x86DD &&
         frame[20] == std::byte{58};
}

std::vector<PcapRecord> roce_records(ConstBytes file) {
  std::vector<PcapRecord> records = parse_pcap(file).value();
  std::erase_if(records, [](const PcapRecord& record) { return is_icmpv6(record.frame); });
  return records;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    file_ = test::read_capture(GetParam());
    records_ = roce_records(file_);
    ASSERT_FALSE(records_.empty());
  }

  std::vector<std::byte> file_;
  std::vector<PcapRecord> records_;
};

TEST_P(Golden, FramesComeOutByteForByte) {
  for (const PcapRecord& record : records_) {
    ASSERT_EQ(record.frame.size(), record.original_size);
    const Result<Frame> frame = parse_frame(record.frame);
    ASSERT_TRUE(frame) << frame.error().message;
    std::array<std::byte, kMaxFrameHeaderSize> headers{};
    const std::size_t size = encode_frame_headers(*frame, headers.data());
    ASSERT_EQ(size + frame->udp_payload.size(), record.frame.size());
    EXPECT_TRUE(std::equal(headers.begin(), headers.begin() + static_cast<std::ptrdiff_t>(size),
                           record.frame.begin()));
  }
}

TEST_P(Golden, PacketsComeOutByteForByte) {
  for (const PcapRecord& record : records_) {
    const ConstBytes datagram = parse_frame(record.frame).value().udp_payload;
    const auto packet = parse(datagram);
    ASSERT_TRUE(packet) << to_string(packet.error());
    ASSERT_EQ(encoded_size(*packet), datagram.size());
    std::vector<std::byte> out(datagram.size());
    encode(*packet, out);
    EXPECT_TRUE(std::ranges::equal(out, datagram)) << to_string(*packet);
    EXPECT_TRUE(to_string(*packet).starts_with(packet->info().name));
  }
}

TEST_P(Golden, IcrcsAreRightAndGiveTheIdentificationAway) {
  for (const PcapRecord& record : records_) {
    const Frame frame = parse_frame(record.frame).value();
    const Packet packet = parse(frame.udp_payload).value();
    const ConstBytes covered = frame.udp_payload.first(frame.udp_payload.size() - kIcrcSize);
    EXPECT_EQ(icrc(frame.path, frame.identification, covered), packet.icrc) << to_string(packet);
    EXPECT_EQ(icrc_solve_identification(frame.path, covered, packet.icrc), frame.identification)
        << to_string(packet);
    // The fields that routers change do not matter.
    Path routed = frame.path;
    routed.hop_limit = 1;
    routed.traffic_class |= 3;
    EXPECT_EQ(icrc(routed, frame.identification, covered), packet.icrc);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Captures, Golden, testing::ValuesIn(captures()), [](const auto& parameter) {
      std::string name = parameter.param;
      std::ranges::replace_if(
          name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      return name;
    });

/// The captures as a whole hold what their README promises.
TEST(GoldenSet, HoldsTheOpcodesAndKindsOfAnswers) {
  std::map<Opcode, int> opcodes;
  std::map<Aeth::Kind, int> answers;
  std::size_t packets = 0;
  int management = 0;
  int ipv6 = 0;
  for (const std::string& name : captures()) {
    const auto file = test::read_capture(name);
    const std::vector<PcapRecord> records = roce_records(file);
    for (const PcapRecord& record : records) {
      const Frame frame = parse_frame(record.frame).value();
      const Packet packet = parse(frame.udp_payload).value();
      ++packets;
      ++opcodes[packet.bth.opcode];
      if (packet.info().has_aeth) ++answers[packet.aeth.kind];
      management += packet.bth.destination_qp == 1 && packet.payload.size() == 256;
      ipv6 += !frame.path.source.is_ipv4();
    }
  }
  for (const Opcode opcode :
       {Opcode::kRcSendOnly,          Opcode::kRcSendFirst,          Opcode::kRcSendMiddle,
        Opcode::kRcSendLast,          Opcode::kRcSendOnlyImm,        Opcode::kRcSendLastImm,
        Opcode::kRcSendOnlyInv,       Opcode::kRcWriteOnly,          Opcode::kRcWriteFirst,
        Opcode::kRcWriteMiddle,       Opcode::kRcWriteLast,          Opcode::kRcWriteOnlyImm,
        Opcode::kRcWriteLastImm,      Opcode::kRcReadRequest,        Opcode::kRcReadResponseOnly,
        Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle, Opcode::kRcReadResponseLast,
        Opcode::kRcAcknowledge,       Opcode::kRcAtomicAcknowledge,  Opcode::kRcCompareSwap,
        Opcode::kRcFetchAdd,          Opcode::kUcSendOnlyImm,        Opcode::kUcWriteOnlyImm,
        Opcode::kUdSendOnly,          Opcode::kUdSendOnlyImm}) {
    EXPECT_GT(opcodes[opcode], 0) << info(opcode).name;
  }
  EXPECT_GT(answers[Aeth::Kind::kAck], 0);
  EXPECT_GT(answers[Aeth::Kind::kRnrNak], 0);
  EXPECT_GT(answers[Aeth::Kind::kNak], 0);
  EXPECT_EQ(management, 9);
  EXPECT_EQ(ipv6, 30);
  EXPECT_EQ(packets, 701U);
}

}  // namespace
}  // namespace verbena::wire
