// SPDX-License-Identifier: Apache-2.0
//
// Unreliable connections: what is lost costs the message in which it is, and nothing else.
#include "engine/unacknowledged.h"

#include <gtest/gtest.h>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

using wire::Opcode;

class UnreliableConnection : public EngineTest {
 protected:
  UnreliableConnection() : EngineTest({}, QpType::kUc) { connect_unreliable(); }

  SendRequest request(SendOpcode opcode, std::uint64_t id = 1) const {
    return {.id = id,
            .opcode = opcode,
            .signaled = true,
            .solicited = true,
            .immediate = 7,
            .remote_address = b.address(10000),
            .rkey = b.key};
  }
  /// Delivers what `a` sends but the packets at these indices.
  void transfer(std::initializer_list<std::size_t> lost = {}) {
    sent_ = collect(a);
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      if (std::ranges::find(lost, i) == lost.end()) deliver(b, sent_[i]);
    }
    EXPECT_TRUE(collect(b).empty());  // nothing is answered
  }
  void send(SendOpcode opcode, std::uint32_t length, std::initializer_list<std::size_t> lost = {}) {
    fill(a, 0, length, length);
    ASSERT_TRUE(a.send(request(opcode), {a.piece(0, length)}, now));
    transfer(lost);
    EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  }

  std::vector<Datagram> sent_;
};

TEST_F(UnreliableConnection, WhatIsDoneHereNeedsNoPacketToComplete) {
  const std::uint32_t window =
      a.keys.insert({.pd = End::kPd, .window = WindowType::kType1}).value();
  SendRequest bind = request(SendOpcode::kBindWindow, 3);
  bind.binding = {.key = window, .region_key = a.key};
  ASSERT_TRUE(a.send(bind, {}, now));
  EXPECT_TRUE(collect(a).empty());
  const Completion completion = a.sent.take();
  EXPECT_EQ(completion.id, 3u);
  EXPECT_EQ(completion.status, Status::kSuccess);
  ASSERT_TRUE(a.send(request(SendOpcode::kWrite, 4), {a.piece(0, 8)}, now));
  bind.id = 5;
  ASSERT_TRUE(a.send(bind, {}, now));
  transfer();
  EXPECT_EQ(a.sent.take().id, 4u);
  EXPECT_EQ(a.sent.take().id, 5u);
}

TEST_F(UnreliableConnection, AFailureBehindWhatIsDoneHereIsTold) {
  const std::uint32_t window =
      a.keys.insert({.pd = End::kPd, .window = WindowType::kType1}).value();
  SendRequest bind = request(SendOpcode::kBindWindow);
  bind.binding = {.key = window, .region_key = a.key};
  ASSERT_TRUE(a.send(bind, {}, now));
  ASSERT_TRUE(a.send(request(SendOpcode::kWrite, 2), {{a.address(0), 8, a.key ^ 1}}, now));
  transfer();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(a.sent.take().status, Status::kLocalProtectionError);
  EXPECT_EQ(a.engine.state(*a.qp), QpState::kSqe);
  EXPECT_FALSE(a.engine.unfinished());
}

TEST_F(UnreliableConnection, MessagesArriveInParts) {
  ASSERT_TRUE(b.receive(8, {b.piece(0, 1000)}, now));
  send(SendOpcode::kSendWithImm, 600);
  ASSERT_EQ(sent_.size(), 3u);
  EXPECT_EQ(sent_[0].packet().bth.opcode, Opcode::kUcSendFirst);
  EXPECT_EQ(sent_[1].packet().bth.opcode, Opcode::kUcSendMiddle);
  EXPECT_EQ(sent_[2].packet().bth.opcode, Opcode::kUcSendLastImm);
  EXPECT_EQ(sent_[0].packet().bth.psn, 100u);
  EXPECT_EQ(sent_[2].packet().bth.psn, 102u);
  EXPECT_FALSE(sent_[2].packet().bth.ack_request);
  EXPECT_TRUE(sent_[2].packet().bth.solicited);
  const Completion completion = b.received.take();
  EXPECT_EQ(completion.id, 8u);
  EXPECT_EQ(completion.byte_count, 600u);
  EXPECT_EQ(completion.immediate_or_key, 7u);
  EXPECT_TRUE(same(a, 0, b, 0, 600));
}

TEST_F(UnreliableConnection, WritesArriveAndTakeAReceiveForTheirImmediate) {
  send(SendOpcode::kWrite, 600);
  EXPECT_TRUE(same(a, 0, b, 10000, 600));
  EXPECT_TRUE(b.received.completions.empty());
  ASSERT_TRUE(b.receive(9, {}, now));
  send(SendOpcode::kWriteWithImm, 300);
  const Completion completion = b.received.take();
  EXPECT_EQ(completion.opcode, CompletionOpcode::kReceiveWriteWithImm);
  EXPECT_EQ(completion.byte_count, 300u);
}

TEST_F(UnreliableConnection, ALongMessageTakesSeveralTurns) {
  ASSERT_TRUE(b.receive(8, {b.piece(0, 100000)}, now));
  send(SendOpcode::kSend, 100000);
  EXPECT_EQ(sent_.size(), 391u);
  EXPECT_EQ(b.received.take().byte_count, 100000u);
  EXPECT_TRUE(same(a, 0, b, 0, 100000));
}

TEST_F(UnreliableConnection, WhatIsLostCostsItsMessage) {
  for (const std::size_t lost : {0, 1, 2}) {
    ASSERT_TRUE(b.receive(lost, {b.piece(0, 1000)}, now));
    send(SendOpcode::kSend, 600, {lost});
    EXPECT_TRUE(b.received.completions.empty());
    // The receive that the message had taken serves the next one.
    send(SendOpcode::kSend, 601);
    const Completion completion = b.received.take();
    EXPECT_EQ(completion.id, lost);
    EXPECT_EQ(completion.byte_count, 601u);
    EXPECT_TRUE(same(a, 0, b, 0, 601));
  }
  EXPECT_EQ(b.engine.counters().out_of_sequence, 3u);
}

TEST_F(UnreliableConnection, WithoutAReceiveOrWithAShortOneAMessageIsDropped) {
  send(SendOpcode::kSend, 600);
  EXPECT_EQ(b.engine.counters().no_receive, 1u);
  ASSERT_TRUE(b.receive(1, {b.piece(0, 500)}, now));
  send(SendOpcode::kSend, 600);
  EXPECT_TRUE(b.received.completions.empty());
  send(SendOpcode::kSend, 500);
  EXPECT_EQ(b.received.take().byte_count, 500u);
}

TEST_F(UnreliableConnection, AWrongKeyDropsTheMessageOnly) {
  SendRequest wrong = request(SendOpcode::kWrite);
  wrong.rkey ^= 1;
  ASSERT_TRUE(a.send(wrong, {a.piece(0, 600)}, now));
  transfer();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.memory[10000], std::byte{0});
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kRts);
  send(SendOpcode::kWrite, 600);
  EXPECT_TRUE(same(a, 0, b, 10000, 600));
}

TEST_F(UnreliableConnection, AReceivesBadKeyIsItsOwnersError) {
  ASSERT_TRUE(b.receive(1, {{b.address(0), 1000, b.key ^ 1}}, now));
  ASSERT_TRUE(b.receive(2, {b.piece(0, 1000)}, now));
  send(SendOpcode::kSend, 10);
  EXPECT_EQ(b.received.take().status, Status::kLocalProtectionError);
  EXPECT_EQ(b.received.take().status, Status::kFlushError);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
}

TEST_F(UnreliableConnection, AFailedSendStopsTheSendQueueOnly) {
  ASSERT_TRUE(a.send(request(SendOpcode::kSend, 1), {{a.address(0), 8, a.key ^ 1}}, now));
  ASSERT_TRUE(a.send(request(SendOpcode::kSend, 2), {a.piece(0, 8)}, now));
  transfer();
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(a.sent.take().status, Status::kLocalProtectionError);
  EXPECT_EQ(a.sent.take().status, Status::kFlushError);
  EXPECT_EQ(a.engine.state(*a.qp), QpState::kSqe);
  QpAttributes attributes;
  attributes.state = QpState::kRts;
  ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState, now));
  send(SendOpcode::kWrite, 8);
}

TEST_F(UnreliableConnection, ReliablePacketsAreNotForIt) {
  wire::Packet packet;
  packet.bth.opcode = Opcode::kRcSendOnly;
  packet.bth.destination_qp = b.qpn;
  packet.bth.psn = 100;
  Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                    .path = {.source = a.source, .destination = b.source}};
  wire::encode(packet, datagram.bytes);
  deliver(b, datagram);
  EXPECT_EQ(b.engine.counters().wrong_transport, 1u);
}

/// By a channel to the same machine, which takes parts while `room` lasts.
class UnreliableNearby : public EngineTest {
 protected:
  UnreliableNearby() : EngineTest(config(), QpType::kUc) { connect_unreliable(1); }
  void send(std::uint32_t length) {
    fill(a, 0, length, length);
    ASSERT_TRUE(a.send({.id = 1, .opcode = SendOpcode::kSend, .signaled = true},
                       {a.piece(0, length)}, now));
  }
  /// Lets time pass to the next look, and delivers what leaves then.
  std::size_t look_again() {
    if (const Time next = a.engine.poll_timeout(); next != kNever) now = next;
    a.engine.handle_timeout(now);
    const std::vector<Datagram> sent = collect(a);
    for (const Datagram& datagram : sent) deliver(b, datagram);
    return sent.size();
  }

  int room = 0;

 private:
  EngineConfig config() {
    EngineConfig made;
    made.has_room = [this](const wire::Path&, std::size_t bytes, Time) {
      EXPECT_LE(bytes, (64U << 10) + 2 * wire::kMaxHeaderSize);
      return room > 0 && room-- > 0;
    };
    return made;
  }
};

TEST_F(UnreliableNearby, DrainsWhenTheRestHasLeft) {
  room = 1;
  send(200000);
  EXPECT_NE(look_again(), 0u);
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  attributes.sqd_notify = true;
  ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState | kMaskSqdNotify, now));
  EXPECT_TRUE(a.engine.attributes(*a.qp).sq_draining);
  EXPECT_FALSE(a.engine.poll_event());
  room = 3;
  EXPECT_NE(look_again(), 0u);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_FALSE(a.engine.attributes(*a.qp).sq_draining);
  const auto event = a.engine.poll_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::kSendQueueDrained);
}

TEST_F(UnreliableNearby, WaitsWhileTheWayIsFull) {
  ASSERT_TRUE(b.receive(8, {b.piece(0, 200000)}, now));
  send(200000);
  EXPECT_EQ(look_again(), 0u);
  const Time start = now;
  EXPECT_EQ(look_again(), 0u);
  EXPECT_EQ(now - start, 50us);
  room = 1;
  EXPECT_EQ(look_again(), 2u);
  EXPECT_EQ(look_again(), 0u);
  EXPECT_TRUE(a.sent.completions.empty());
  room = 3;
  EXPECT_EQ(look_again(), 5u);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().byte_count, 200000u);
  EXPECT_TRUE(same(a, 0, b, 0, 200000));
  EXPECT_EQ(a.engine.poll_timeout(), kNever);
}

TEST_F(UnreliableNearby, WhatWaitsIsFlushed) {
  send(100);
  EXPECT_TRUE(collect(a).empty());
  QpAttributes attributes;
  attributes.state = QpState::kErr;
  ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState, now));
  EXPECT_EQ(a.sent.take().status, Status::kFlushError);
  look_again();
  EXPECT_EQ(a.engine.poll_timeout(), kNever);
}

}  // namespace
}  // namespace verbena::engine::testing
