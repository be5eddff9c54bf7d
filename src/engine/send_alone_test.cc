// SPDX-License-Identifier: Apache-2.0
//
// A request of one packet that leaves without a turn of the engine.
#include <gtest/gtest.h>

#include <array>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

class SendAlone : public EngineTest {
 protected:
  explicit SendAlone(std::uint16_t channel = 0) {
    connect({.channel = channel});
    settle();
  }
  /// Posts as a program does, but for the bell.
  void post(SendRequest request, std::uint32_t length) {
    const std::vector pieces{a.piece(0, length)};
    request.pieces = pieces;
    ASSERT_TRUE(a.sends.post(request));
  }
  /// One acknowledgement of a's.
  void hold_one() {
    ASSERT_TRUE(a.receive(8, {a.piece(1000, 100)}, now));
    ASSERT_TRUE(b.send(send_, {b.piece(0, 100)}, now));
    for (const Datagram& datagram : collect(b)) deliver(a, datagram);
    EXPECT_TRUE(collect(a, Acks::kHold).empty());
  }
  [[nodiscard]] bool leaves_alone() {
    wire::Train train;
    if (!a.engine.send_alone(*a.qp, train)) return false;
    a.engine.sent_alone(*a.qp, now);
    EXPECT_EQ(train.count, 1u);
    const wire::TrainPacket packet = wire::packet_at(train, 0);
    sent_ = {.bytes = std::vector<std::byte>(packet.wire_size()), .path = *train.path};
    wire::write_packet(train, packet, 0, sent_.bytes);
    return true;
  }

  SendRequest send_{.id = 1, .opcode = SendOpcode::kSend, .signaled = true};
  Datagram sent_;
};

class SendAloneByChannel : public SendAlone {
 protected:
  SendAloneByChannel() : SendAlone(1) {}
};

TEST_F(SendAlone, ItIsThePacketThatATurnGives) {
  ASSERT_TRUE(b.receive(8, {b.piece(0, 100)}, now));
  fill(a, 0, 100, 3);
  post(send_, 100);
  ASSERT_TRUE(leaves_alone());
  EXPECT_TRUE(collect(a).empty());
  EXPECT_EQ(sent_.packet().bth.psn, 100u);
  EXPECT_TRUE(sent_.packet().bth.ack_request);
  deliver(b, sent_);
  EXPECT_EQ(b.received.take().byte_count, 100u);
  EXPECT_TRUE(same(a, 0, b, 0, 100));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(a.counters.packets_sent, 1u);
}

TEST_F(SendAlone, WhatIsLostIsRepeated) {
  ASSERT_TRUE(b.receive(8, {b.piece(0, 100)}, now));
  post(send_, 100);
  ASSERT_TRUE(leaves_alone());
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().byte_count, 100u);
}

TEST_F(SendAloneByChannel, TheAcknowledgementThatIsHeldRidesInIt) {
  hold_one();
  post(send_, 100);
  ASSERT_TRUE(leaves_alone());
  EXPECT_FALSE(a.engine.acks_held());
  EXPECT_TRUE(collect(a).empty());
  ASSERT_TRUE(b.receive(9, {b.piece(1000, 100)}, now));
  deliver(b, sent_);
  EXPECT_EQ(b.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().byte_count, 100u);
}

// ib_write_lat looks for its own acknowledgement only: the reply has to be there by then.
TEST_F(SendAlone, AcknowledgementsThatAreHeldTakeATurnWithIt) {
  hold_one();
  post(send_, 100);
  EXPECT_FALSE(leaves_alone());
  a.engine.posted(*a.qp, now);
  std::array<wire::Train, 4> trains;
  ASSERT_EQ(a.engine.poll_transmit(now, trains, Acks::kSend), 2u);
  EXPECT_EQ(trains[1].head.bth.opcode, wire::Opcode::kRcAcknowledge);
}

TEST_F(SendAlone, WhatTakesATurnDoesNot) {
  post(send_, 1025);  // more than one packet
  EXPECT_FALSE(leaves_alone());
  a.engine.posted(*a.qp, now);
  EXPECT_EQ(collect(a).size(), 2u);
  post({.id = 2, .opcode = SendOpcode::kRead, .remote_address = b.address(0), .rkey = b.key}, 8);
  EXPECT_FALSE(leaves_alone());
  a.engine.posted(*a.qp, now);
  EXPECT_EQ(collect(a).size(), 1u);
  post(send_, 8);
  post(send_, 8);  // two
  EXPECT_FALSE(leaves_alone());
  a.engine.posted(*a.qp, now);
  EXPECT_FALSE(leaves_alone());  // somebody waits for a turn
  EXPECT_EQ(collect(a).size(), 2u);
}

TEST_F(SendAlone, AMistakeIsFoundByTheTurnBehindIt) {
  const std::vector pieces{Sge{a.address(0), 8, a.key + 1}};
  SendRequest request = send_;
  request.pieces = pieces;
  ASSERT_TRUE(a.sends.post(request));
  EXPECT_FALSE(leaves_alone());
  a.engine.posted(*a.qp, now);
  EXPECT_TRUE(collect(a).empty());
  EXPECT_EQ(a.sent.take().status, Status::kLocalProtectionError);
}

}  // namespace
}  // namespace verbena::engine::testing
