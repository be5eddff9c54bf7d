// SPDX-License-Identifier: Apache-2.0
#include "verbena/flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using ::testing::HasSubstr;
using testing::must;

constexpr std::size_t kFrameSize = 60;
constexpr mac_address kSender{2, 0, 0, 0, 0, 7};
constexpr mac_address kReceiver{2, 0, 0, 0, 0, 9};

/// Sends frames of IPv4 and UDP from one device to the other.
class RawFrames : public ::testing::Test {
 protected:
  RawFrames() {
    must(sender_qp.activate(port{1}));
    must(receiver_qp.activate(port{1}));
  }
  static queue_pair<raw_packet> make(const End& end, const completion_queue& cq) {
    return must(end.pd.create_qp<raw_packet>({.send_cq = cq, .recv_cq = cq}));
  }

  struct Frame {
    mac_address from = kSender;
    std::array<std::uint8_t, 4> address{10, 0, 0, 1};
    std::uint16_t udp_port = 53;
  };
  /// To 10.0.0.2, from port 1000.
  void send(const Frame& frame) const {
    const std::span<std::byte> to = sender.memory.bytes().first(kFrameSize);
    testing::fill(to, '.');
    std::size_t at = 0;
    const auto put = [&](auto... bytes) { ((to[at++] = static_cast<std::byte>(bytes)), ...); };
    for (const std::uint8_t byte : kReceiver) put(byte);
    for (const std::uint8_t byte : frame.from) put(byte);
    put(0x08, 0x00, 0x45, 0, 0, kFrameSize - 14, 0, 0, 0, 0, 64, 17, 0, 0);
    for (const std::uint8_t byte : frame.address) put(byte);
    put(10, 0, 0, 2, 1000 >> 8, 1000 & 0xFF, frame.udp_port >> 8, frame.udp_port & 0xFF);
    put(0, kFrameSize - 34, 0, 0);
    must(sender_qp.send(must(sender.memory.slice(0, kFrameSize))));
    EXPECT_TRUE(sender.next().ok());
  }
  void expect(std::uint64_t wr_id) const {
    must(receiver_qp.post_recv(must(receiver.memory.slice(0, 2048)), wr_id));
  }
  /// Whether the receive that was posted with the number is what comes next.
  void received(std::uint64_t wr_id) const {
    const work_completion got = receiver.next();
    EXPECT_TRUE(got.ok());
    EXPECT_EQ(got.wr_id(), wr_id);
    EXPECT_EQ(got.byte_len(), kFrameSize);
    EXPECT_TRUE(std::ranges::equal(receiver.memory.bytes().first(kFrameSize),
                                   sender.memory.bytes().first(kFrameSize)));
  }

  End sender{"vrb0"};
  End receiver{"vrb1"};
  queue_pair<raw_packet> sender_qp = make(sender, sender.cq);
  queue_pair<raw_packet> receiver_qp = make(receiver, receiver.cq);
};

// A frame that must not come is followed by one that must: it would be there before.

TEST_F(RawFrames, AreSteeredByTheSendersAddress) {
  const auto rule = must(flow_rule::matching(receiver_qp, {.from_mac = kSender}));
  expect(1);
  send({.from = {2, 0, 0, 0, 0, 8}});
  send({});
  received(1);
}

TEST_F(RawFrames, AreSteeredByAddressAndPort) {
  const auto rule =
      must(flow_rule::matching(receiver_qp, {.from_address = must(gid::from_string("10.0.0.1")),
                                             .protocol = ip_protocol::udp,
                                             .to_port = std::uint16_t{4000}}));
  expect(1);
  send({.udp_port = 53});
  send({.address = {10, 0, 0, 3}, .udp_port = 4000});
  send({.udp_port = 4000});
  received(1);
}

TEST_F(RawFrames, GoToTheDefaultWhereNoRuleTakesThem) {
  const auto other_cq = must(receiver.ctx.create_cq({.depth = 16}));
  auto other_qp = make(receiver, other_cq);
  must(other_qp.activate(port{1}));
  const auto rule = must(flow_rule::matching(other_qp, {.from_mac = kSender}));
  const auto rest = must(flow_rule::all_else(receiver_qp));
  must(other_qp.post_recv(must(receiver.memory.slice(2048, 2048)), 5));
  expect(1);
  send({});
  EXPECT_EQ(testing::next_of(other_cq).wr_id(), 5);
  send({.from = {2, 0, 0, 0, 0, 8}});
  received(1);
}

TEST_F(RawFrames, ASnifferTakesNothingAway) {
  const auto other_cq = must(receiver.ctx.create_cq({.depth = 16}));
  auto other_qp = make(receiver, other_cq);
  must(other_qp.activate(port{1}));
  const auto sniffer = must(flow_rule::sniffer(other_qp));
  const auto rule = must(flow_rule::matching(receiver_qp, {.from_mac = kSender}));
  must(other_qp.post_recv(must(receiver.memory.slice(2048, 2048)), 5));
  expect(1);
  send({});
  EXPECT_EQ(testing::next_of(other_cq).wr_id(), 5);
  received(1);
}

TEST_F(RawFrames, ARuleEndsWithItsHandleAndHoldsItsQueuePair) {
  std::optional<flow_rule> rule = must(flow_rule::matching(receiver_qp, {.from_mac = kSender}));
  EXPECT_EQ(receiver_qp.close().error(), std::errc::device_or_resource_busy);
  expect(1);
  send({});
  received(1);
  rule.reset();
  const auto second =
      must(flow_rule::matching(receiver_qp, {.from_mac = mac_address{2, 0, 0, 0, 0, 8}}));
  expect(2);
  send({});
  send({.from = {2, 0, 0, 0, 0, 8}});
  received(2);
}

TEST_F(RawFrames, CarryTheRulesTag) {
  const auto cq = must(receiver.ctx.create_cq_ex(
      {.depth = 16, .fields = wc_fields::byte_len | wc_fields::flow_tag}));
  auto tagged = make(receiver, cq);
  must(tagged.activate(port{1}));
  const auto rule = must(flow_rule::matching(tagged, {.ether_type = std::uint16_t{0x0800}},
                                             {.tag = std::uint32_t{0xBEEF}}));
  must(tagged.post_recv(must(receiver.memory.slice(0, 2048)), 3));
  send({});
  testing::at_next_of(cq, [](const poll_guard& poll) {
    EXPECT_EQ(poll.wr_id(), 3);
    EXPECT_EQ(poll.flow_tag(), 0xBEEF);
  });
}

TEST_F(RawFrames, RulesThatMakeNoSenseAreRefused) {
  const auto refusal = [&](const flow_match& match) {
    const auto made = flow_rule::matching(receiver_qp, match);
    return made ? std::string() : made.error().message();
  };
  EXPECT_THAT(refusal({}), HasSubstr("nothing is set"));
  EXPECT_THAT(refusal({.to_port = std::uint16_t{1}}), HasSubstr("ports need a protocol"));
  EXPECT_THAT(refusal({.to_address = must(gid::from_string("fe80::1")),
                       .from_address = must(gid::from_string("10.0.0.1"))}),
              HasSubstr("one address is of IPv4"));
  const auto elsewhere = flow_rule::matching(receiver_qp, {.from_mac = kSender}, {.of = port{2}});
  EXPECT_EQ(elsewhere.error(), std::errc::invalid_argument);
  const auto taken = std::move(receiver_qp);
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(flow_rule::all_else(receiver_qp).error(), std::errc::bad_file_descriptor);
}

}  // namespace
}  // namespace verbena::verbs
