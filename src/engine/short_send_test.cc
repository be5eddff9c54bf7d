// SPDX-License-Identifier: Apache-2.0
//
// A SEND that leaves before it is posted, and what its receiver makes of it.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

class ShortSend : public EngineTest {
 protected:
  explicit ShortSend(std::uint16_t channel = 1) {
    connect({.channel = channel});
    settle();
  }
  /// What a's request becomes, when it leaves short.
  std::optional<Datagram> send_short(const ShortRequest& request) {
    wire::ShortSend message;
    if (!a.engine.short_send(*a.qp, request, message)) return std::nullopt;
    Datagram sent{.bytes = std::vector<std::byte>(message.wire_size()), .path = *message.path};
    EXPECT_TRUE(wire::write_short(message, sent.bytes.data()));
    EXPECT_TRUE(a.sends.post({.id = request.id,
                              .signaled = request.signaled,
                              .solicited = request.solicited,
                              .pieces = std::span(&request.piece, 1)}));
    a.engine.sent_short(*a.qp, now);
    return sent;
  }
  [[nodiscard]] ShortRequest request(std::uint32_t length, bool solicited = false) const {
    return {.id = 1, .piece = a.piece(0, length), .signaled = true, .solicited = solicited};
  }
  void receive(std::vector<Sge> pieces) { ASSERT_TRUE(b.receive(8, std::move(pieces), now)); }
};

class ShortSendByNetwork : public ShortSend {
 protected:
  ShortSendByNetwork() : ShortSend(0) {}
};

TEST_F(ShortSend, IsReceivedAndAcknowledgedAsAnyIs) {
  for (const std::uint32_t length : {0U, 1U, 64U, 1000U}) {
    receive({b.piece(0, 1000)});
    fill(a, 0, 1000, length);
    const auto sent = send_short(request(length, true));
    ASSERT_TRUE(sent);
    EXPECT_TRUE(collect(a).empty());
    const Handled handled = deliver(b, *sent);
    EXPECT_EQ(handled.taken, 1u);
    EXPECT_EQ(handled.useful, 1u);
    const Completion got = b.received.take();
    EXPECT_EQ(got.id, 8u);
    EXPECT_EQ(got.opcode, CompletionOpcode::kReceive);
    EXPECT_EQ(got.byte_count, length);
    EXPECT_EQ(got.source_qp, a.qpn);
    EXPECT_EQ(got.qp_number, b.qpn);
    EXPECT_TRUE(got.solicited);
    EXPECT_TRUE(same(a, 0, b, 0, length));
    settle();
    EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  }
  EXPECT_EQ(a.counters.packets_sent, 4u);
  EXPECT_EQ(a.counters.bytes_sent, 1065u);
  EXPECT_EQ(b.counters.packets_received, 4u);
  EXPECT_EQ(b.counters.bytes_received, 1065u);
  EXPECT_EQ(b.counters.receives_completed, 4u);
  EXPECT_EQ(a.counters.retransmitted, 0u);
}

TEST_F(ShortSend, ThatIsLostIsRepeated) {
  receive({b.piece(0, 100)});
  fill(a, 0, 100, 3);
  ASSERT_TRUE(send_short(request(100)));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().byte_count, 100u);
  EXPECT_TRUE(same(a, 0, b, 0, 100));
}

TEST_F(ShortSend, ThatIsNotSignaledCompletesNothing) {
  receive({b.piece(0, 8)});
  receive({b.piece(0, 8)});
  ShortRequest silent = request(8);
  silent.signaled = false;
  const auto first = send_short(silent);
  ASSERT_TRUE(first);
  deliver(b, *first);
  settle();
  EXPECT_TRUE(a.sent.completions.empty());
  const auto second = send_short(request(8));
  ASSERT_TRUE(second);
  deliver(b, *second);
  settle();
  EXPECT_EQ(a.sent.completions.size(), 1u);
  EXPECT_EQ(a.sends.room(), a.sends.capacity());
}

TEST_F(ShortSend, WhoseReceiveHasAWrongKeyEndsBoth) {
  Sge wrong = b.piece(0, 8);
  ++wrong.lkey;
  receive({wrong});
  const auto sent = send_short(request(8));
  ASSERT_TRUE(sent);
  deliver(b, *sent);
  EXPECT_EQ(b.received.take().status, Status::kLocalProtectionError);
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kRemoteOperationError);
}

TEST_F(ShortSend, TakesAnotherWayWhileSomethingWaits) {
  const std::vector pieces{a.piece(0, 8)};
  ASSERT_TRUE(a.sends.post({.id = 1, .pieces = pieces}));
  EXPECT_FALSE(send_short(request(8))) << "one is posted";
  a.engine.posted(*a.qp, now);
  EXPECT_FALSE(send_short(request(8))) << "it waits for a turn";
  EXPECT_EQ(collect(a).size(), 1u);
  EXPECT_TRUE(send_short(request(8)));
}

TEST_F(ShortSend, TakesAnotherWayWhereItCannotBeOne) {
  EXPECT_FALSE(send_short(request(wire::kMaxChannelMtu + 1)));
  ShortRequest wrong = request(8);
  ++wrong.piece.lkey;
  EXPECT_FALSE(send_short(wrong));
  EXPECT_EQ(a.sends.tail(), 0u);
}

TEST_F(ShortSend, TakesAnotherWayOnceTheWindowIsFull) {
  std::size_t sent = 0;
  while (sent < 60 && send_short(request(wire::kMaxChannelMtu))) ++sent;
  EXPECT_GT(sent, 1u);
  EXPECT_LT(sent, 60u);
  EXPECT_TRUE(collect(a).empty());
}

TEST_F(ShortSend, TakesAnotherWayWhileRepetitionsAreDue) {
  ASSERT_TRUE(send_short(request(8)));
  a.engine.handle_timeout(now = a.engine.poll_timeout());
  EXPECT_FALSE(send_short(request(8)));
  EXPECT_EQ(collect(a).size(), 1u);
}

TEST_F(ShortSend, TakesAnotherWayInSqd) {
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState, now));
  collect(a);
  EXPECT_FALSE(send_short(request(8)));
}

TEST_F(ShortSendByNetwork, TakesAnotherWay) { EXPECT_FALSE(send_short(request(8))); }

TEST_F(ShortSend, WaitsForAReceiveAsAnyDoes) {
  const auto sent = send_short(request(8));
  ASSERT_TRUE(sent);
  EXPECT_EQ(deliver(b, *sent).taken, 1u);
  EXPECT_TRUE(b.received.completions.empty());
  for (const Datagram& answer : collect(b)) deliver(a, answer);
  EXPECT_EQ(b.counters.rnr_naks_sent, 1u);
  receive({b.piece(0, 8)});
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().byte_count, 8u);
}

TEST_F(ShortSend, LongerThanItsReceiveEndsBoth) {
  receive({b.piece(0, 8)});
  const auto sent = send_short(request(9));
  ASSERT_TRUE(sent);
  deliver(b, *sent);
  EXPECT_EQ(b.received.take().status, Status::kLocalLengthError);
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kRemoteInvalidRequest);
}

TEST_F(ShortSend, GoesIntoAllPiecesOfItsReceive) {
  receive({b.piece(500, 3), b.piece(100, 0), b.piece(0, 100)});
  fill(a, 0, 64, 5);
  const auto sent = send_short(request(64));
  ASSERT_TRUE(sent);
  deliver(b, *sent);
  EXPECT_EQ(b.received.take().byte_count, 64u);
  EXPECT_TRUE(same(a, 0, b, 500, 3));
  EXPECT_TRUE(same(a, 3, b, 0, 61));
}

TEST_F(ShortSend, ThatComesAgainIsOnlyAcknowledged) {
  receive({b.piece(0, 8)});
  receive({b.piece(0, 8)});
  const auto sent = send_short(request(8));
  ASSERT_TRUE(sent);
  deliver(b, *sent);
  deliver(b, *sent);
  EXPECT_EQ(b.received.completions.size(), 1u);
  EXPECT_EQ(b.counters.duplicates, 1u);
}

TEST_F(ShortSend, FromAStrangerIsNotTaken) {
  receive({b.piece(0, 8)});
  auto sent = send_short(request(8));
  ASSERT_TRUE(sent);
  sent->path.source = wire::Address::from_ipv4(0x7F000009);
  EXPECT_EQ(deliver(b, *sent).taken, 0u);
  EXPECT_EQ(b.counters.wrong_source, 1u);
  EXPECT_TRUE(b.received.completions.empty());
}

TEST_F(ShortSend, ThatOverflowsACompletionQueueEndsItsQueuePair) {
  receive({b.piece(0, 8)});
  b.received.limit = 0;
  const auto sent = send_short(request(8));
  ASSERT_TRUE(sent);
  deliver(b, *sent);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
}

TEST_F(ShortSend, TakesTheAcknowledgementAlongThatIsHeld) {
  ASSERT_TRUE(a.receive(8, {a.piece(1000, 100)}, now));
  ASSERT_TRUE(b.send({.id = 2, .signaled = true}, {b.piece(0, 100)}, now));
  for (const Datagram& datagram : collect(b)) deliver(a, datagram);
  ASSERT_TRUE(collect(a, Acks::kHold).empty());
  ASSERT_TRUE(a.engine.acks_held());
  const auto sent = send_short(request(8));
  ASSERT_TRUE(sent);
  EXPECT_FALSE(a.engine.acks_held());
  EXPECT_TRUE(collect(a).empty());
  receive({b.piece(0, 8)});
  deliver(b, *sent);
  EXPECT_EQ(b.sent.take().id, 2u);
  EXPECT_EQ(b.received.take().byte_count, 8u);
}

}  // namespace
}  // namespace verbena::engine::testing
