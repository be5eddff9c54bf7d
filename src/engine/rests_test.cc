// SPDX-License-Identifier: Apache-2.0
//
// Packets at the end of a queue of SENDs that fill no whole send, and wait for the next one.
#include <gtest/gtest.h>

#include "engine/message.h"
#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint32_t kMtu = 1024;
/// Packets of that path MTU in one send: 65507 bytes hold 62 of 1040.
constexpr std::uint32_t kWhole = 62;

class RestsTest : public EngineTest {
 protected:
  explicit RestsTest(std::uint16_t channel = 0) : EngineTest({.window_initial = 1 << 20}) {
    connect({.mtu = kMtu, .channel = channel});
    settle();
    for (std::uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(b.receive(i, {b.piece(0, kMost)}, now));
  }

  void post(std::uint32_t length, SendOpcode opcode = SendOpcode::kSend) {
    ASSERT_TRUE(
        a.send({.opcode = opcode, .signaled = true, .remote_address = b.address(0), .rkey = b.key},
               {a.piece(0, length)}, now));
  }
  /// How many packets leave while rests are held.
  std::uint32_t leave() {
    std::uint32_t packets = 0;
    std::array<wire::Train, 16> trains;
    while (const std::size_t count = a.engine.poll_transmit(now, trains, Acks::kSend, Rests::kHold))
      for (const wire::Train& train : std::span(trains).first(count)) packets += train.count;
    return packets;
  }
  /// A message that is under way, so that the next one follows another.
  void begin() {
    post(kMtu);
    ASSERT_EQ(leave(), 1U);
  }

  static constexpr std::uint32_t kMost = 60 * kMtu;
};

class RestsByChannel : public RestsTest {
 protected:
  RestsByChannel() : RestsTest(1) {}
};

TEST_F(RestsTest, ALoneMessageLeavesWhole) {
  post(20 * kMtu);
  EXPECT_EQ(leave(), 20U);
  EXPECT_FALSE(a.engine.rests_held());
}

TEST_F(RestsTest, WhatFillsNoSendWaitsForTheNextMessage) {
  begin();
  post(40 * kMtu);
  EXPECT_EQ(leave(), 0U);
  EXPECT_TRUE(a.engine.rests_held());
  EXPECT_FALSE(a.engine.may_transmit(Acks::kSend, Rests::kHold));
  post(40 * kMtu);
  EXPECT_EQ(leave(), kWhole);
  EXPECT_TRUE(a.engine.rests_held());
  EXPECT_TRUE(a.engine.may_transmit(Acks::kSend));
  EXPECT_EQ(collect(a).size(), 80 - kWhole);
  EXPECT_FALSE(a.engine.rests_held());
}

TEST_F(RestsTest, ItArrivesAsItWasPosted) {
  fill(a, 0, 40 * kMtu, 5);
  post(40 * kMtu);
  std::vector<Datagram> first = collect(a);
  post(40 * kMtu);
  EXPECT_EQ(leave(), 0U);
  for (const Datagram& datagram : first) deliver(b, datagram);
  settle();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(a.sent.take().status, Status::kSuccess);
    EXPECT_EQ(b.received.take().byte_count, 40 * kMtu);
  }
  EXPECT_TRUE(same(a, 0, b, 0, 40 * kMtu));
}

/// The one before it was acknowledged meanwhile: the program posts the next one all the same.
TEST_F(RestsTest, AnAcknowledgementDoesNotSendIt) {
  post(kMtu);
  const std::vector<Datagram> first = collect(a);
  post(40 * kMtu);
  EXPECT_EQ(leave(), 0U);
  for (const Datagram& datagram : first) deliver(b, datagram);
  for (const Datagram& datagram : collect(b)) deliver(a, datagram);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(leave(), 0U);
  EXPECT_TRUE(a.engine.rests_held());
}

TEST_F(RestsTest, PacketsOfOtherLengthsDoNotWait) {
  begin();
  post(20 * kMtu + 8);
  EXPECT_EQ(leave(), 21U) << "the last one is shorter: it ends a send";
  post(20 * kMtu, SendOpcode::kSendWithImm);
  EXPECT_EQ(leave(), 20U) << "the last one is longer";
  post(20 * kMtu, SendOpcode::kWrite);
  EXPECT_EQ(leave(), 20U) << "the first one is longer";
  post(kMtu);
  EXPECT_EQ(leave(), 1U) << "a message of one packet";
  EXPECT_FALSE(a.engine.rests_held());
}

TEST_F(RestsTest, AListOfMessagesOfOnePacketWaitsForTheNext) {
  for (std::uint64_t i = 8; i < 64; ++i) ASSERT_TRUE(b.receive(i, {b.piece(0, kMtu)}, now));
  for (const SendOpcode opcode : {SendOpcode::kWrite, SendOpcode::kSend}) {
    begin();
    for (int i = 0; i < 20; ++i) post(kMtu, opcode);
    EXPECT_EQ(leave(), 0U);
    EXPECT_TRUE(a.engine.rests_held());
    for (std::uint32_t posted = 21; posted < kWhole; ++posted) {
      post(kMtu, opcode);
      EXPECT_EQ(leave(), 0U) << posted;
    }
    post(kMtu, opcode);
    EXPECT_EQ(leave(), kWhole);
    EXPECT_FALSE(a.engine.rests_held());
    settle();
  }
}

TEST_F(RestsTest, FewMessagesOfOnePacketDoNotWaitNorUnlikeOnes) {
  begin();
  for (int i = 0; i < 7; ++i) post(100);
  EXPECT_EQ(leave(), 7U);
  for (int i = 0; i < 7; ++i) post(100, SendOpcode::kWrite);
  post(200, SendOpcode::kWrite);
  EXPECT_EQ(leave(), 8U);
  for (int i = 0; i < 8; ++i) post(100, SendOpcode::kSendWithImm);
  EXPECT_EQ(leave(), 8U);
  EXPECT_FALSE(a.engine.rests_held());
}

TEST_F(RestsTest, LossSendsEverything) {
  begin();
  post(40 * kMtu);
  EXPECT_EQ(leave(), 0U);
  now = a.engine.poll_timeout();
  a.engine.handle_timeout(now);
  EXPECT_EQ(collect(a).size(), 41U);
}

TEST_F(RestsTest, AnEndedQueuePairIsForgotten) {
  begin();
  post(40 * kMtu);
  EXPECT_EQ(leave(), 0U);
  QpAttributes attributes;
  attributes.state = QpState::kErr;
  ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState, now));
  EXPECT_TRUE(collect(a).empty());
  EXPECT_FALSE(a.engine.rests_held());
  EXPECT_EQ(a.sent.completions.size(), 2U);
  a.engine.destroy(*a.qp, now);
  EXPECT_TRUE(collect(a).empty());
}

TEST_F(RestsByChannel, NothingWaits) {
  post(kMtu);
  static_cast<void>(leave());
  post(40 * kMtu);
  EXPECT_NE(leave(), 0U);
  EXPECT_FALSE(a.engine.rests_held());
}

}  // namespace
}  // namespace verbena::engine::testing
