// SPDX-License-Identifier: Apache-2.0
//
// The management datagrams that Linux's connection managers exchanged in the captures of
// tests/vectors. What they hold is what Wireshark says of them, but for two things: it reads a
// path's flow label and rate shifted by eight bits, and service ID resolution not at all; there the
// bytes were read by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "wire/cm_message.h"
#include "wire/cm_service.h"
#include "wire/frame.h"
#include "wire/packet.h"
#include "wire/pcap.h"
#include "wire/test_support.h"

namespace verbena::wire {
namespace {

using Mad = std::array<std::byte, kMadSize>;

std::vector<Mad> mads_of(std::string_view capture) {
  const std::vector<std::byte> file = test::read_capture(capture);
  const std::vector<PcapRecord> records = parse_pcap(file).value();
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
