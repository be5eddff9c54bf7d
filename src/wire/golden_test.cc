// SPDX-License-Identifier: Apache-2.0
//
// Every packet of every capture in tests/vectors, which Linux's own software RoCE sent, goes
// through this room and comes out the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "wire/cm_message.h"
#include "wire/cm_service.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/packet.h"
#include "wire/pcap.h"

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

std::vector<std::byte> read_capture(const std::string& name) {
  std::ifstream file(std::filesystem::path(VERBENA_VECTORS) / (name + ".pcap"), std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
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
    file_ = read_capture(GetParam());
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
    const auto file = read_capture(name);
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

using Mad = std::array<std::byte, kMadSize>;

/// The management datagrams of a capture. What they hold is what Wireshark says of them, but for
/// two things, where the bytes were read by hand: it takes too few for a path's flow label and
/// rate, and service ID resolution it does not read at all.
std::vector<Mad> mads_of(const std::string& capture) {
  const std::vector<std::byte> file = read_capture(capture);
  const std::vector<PcapRecord> records = roce_records(file);
  std::vector<Mad> mads;
  for (const PcapRecord& record : records) {
    const Packet packet = parse(parse_frame(record.frame).value().udp_payload).value();
    if (packet.bth.destination_qp != kGeneralServiceQp) continue;
    EXPECT_EQ(packet.deth.qkey, kGeneralServiceQkey);
    EXPECT_EQ(packet.payload.size(), kMadSize);
    std::ranges::copy(packet.payload, mads.emplace_back().begin());
  }
  return mads;
}

void expect_mad(const Mad& mad, const CmMad& expected) {
  const auto parsed = parse_cm(mad);
  ASSERT_TRUE(parsed) << to_string(parsed.error());
  EXPECT_EQ(*parsed, expected) << to_string(*parsed) << "\n" << to_string(expected);
  Mad encoded;
  encoded.fill(std::byte{0xA5});
  encode_cm(expected, encoded);
  EXPECT_EQ(encoded, mad);
}

template <typename Message>
Message with_addresses(Message message, std::uint16_t source_port) {
  CmAddressHeader{.source_port = source_port,
                  .source = Address::from_string("10.77.0.2").value(),
                  .destination = Address::from_string("10.77.0.1").value()}
      .encode(message.private_data.data());
  return message;
}

/// What the two captured REQs have in common.
CmReq captured_req() {
  return {.service_id = 0x0000000001061C06,
          .local_ca_guid = 0x505400FFFE770002,
          .responder_resources = 1,
          .initiator_depth = 1,
          .remote_response_timeout = 20,
          .transport = CmTransport::kRc,
          .local_response_timeout = 20,
          .retry_count = 7,
          .pkey = 0xFFFF,
          .path_mtu = 3,
          .rnr_retry_count = 7,
          .max_cm_retries = 15,
          .primary = {.local_lid = 0xFFFF,
                      .remote_lid = 0xFFFF,
                      .local_gid = Address::from_string("::ffff:10.77.0.2").value(),
                      .remote_gid = Address::from_string("::ffff:10.77.0.1").value(),
                      .hop_limit = 64,
                      .local_ack_timeout = 19}};
}

TEST(CmGolden, AConnectionOfRping) {
  const std::vector<Mad> mads = mads_of("rxe-cm-rping");
  ASSERT_EQ(mads.size(), 5U);
  CmReq req = captured_req();
  req.local_id = 0xD71C4AFE;
  req.local_qp = 0x24;
  req.starting_psn = 0x5443C4;
  req.primary.flow_label = 0xB4670;
  expect_mad(mads[0], {.transaction = 0x2FE4A1CD7, .message = with_addresses(req, 0xE056)});
  expect_mad(mads[1], {.transaction = 0x2FE4A1CD7,
                       .message = CmRep{.local_id = 0xD34A71D5,
                                        .remote_id = 0xD71C4AFE,
                                        .local_qp = 0x1A,
                                        .starting_psn = 0x5BD3B9,
                                        .responder_resources = 1,
                                        .initiator_depth = 1,
                                        .target_ack_delay = 15,
                                        .rnr_retry_count = 7,
                                        .local_ca_guid = 0x505400FFFE770001}});
  expect_mad(mads[2], {.transaction = 0x2FE4A1CD7,
                       .message = CmRtu{.local_id = 0xD71C4AFE, .remote_id = 0xD34A71D5}});
  expect_mad(mads[3], {.transaction = 0x2FE4A1CD7,
                       .message = CmDreq{
                           .local_id = 0xD71C4AFE, .remote_id = 0xD34A71D5, .remote_qp = 0x1A}});
  expect_mad(mads[4], {.transaction = 0x2FE4A1CD7,
                       .message = CmDrep{.local_id = 0xD34A71D5, .remote_id = 0xD71C4AFE}});
}

TEST(CmGolden, ARequestThatNobodyListensFor) {
  const std::vector<Mad> mads = mads_of("rxe-cm-reject");
  ASSERT_EQ(mads.size(), 2U);
  CmReq req = captured_req();
  req.local_id = 0xD51C4AFE;
  req.local_qp = 0x26;
  req.starting_psn = 0xF4506B;
  req.primary.flow_label = 0x65B2F;
  expect_mad(mads[0], {.transaction = 0x2FE4A1CD5, .message = with_addresses(req, 0xB7B7)});
  expect_mad(mads[1], {.transaction = 0x2FE4A1CD5,
                       .message = CmRej{.local_id = 0,
                                        .remote_id = 0xD51C4AFE,
                                        .subject = CmSubject::kReq,
                                        .reason = RejectReason::kInvalidServiceId}});
}

TEST(CmGolden, AServiceIdThatUdaddyResolves) {
  const std::vector<Mad> mads = mads_of("rxe-cm-udaddy");
  ASSERT_EQ(mads.size(), 2U);
  expect_mad(
      mads[0],
      {.transaction = 0x2FE4A1CD6,
       .message = with_addresses(
           CmSidrReq{.request_id = 0xD61C4AFE, .pkey = 0xFFFF, .service_id = 0x0000000001111C06},
           0x850C)});
  expect_mad(mads[1], {.transaction = 0x2FE4A1CD6,
                       .message = CmSidrRep{.request_id = 0xD61C4AFE,
                                            .status = SidrStatus::kValid,
                                            .qp = 0x1B,
                                            .service_id = 0x0000000001111C06,
                                            .qkey = 0x01234567}});
}

TEST(CmGolden, ServiceIdsArePorts) {
  EXPECT_EQ(service_port(0x0000000001061C06), (ServicePort{PortSpace::kTcp, 7174}));
  EXPECT_EQ(service_port(0x0000000001111C06), (ServicePort{PortSpace::kUdp, 7174}));
}

}  // namespace
}  // namespace verbena::wire
