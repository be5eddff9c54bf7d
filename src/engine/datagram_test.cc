// SPDX-License-Identifier: Apache-2.0
#include "engine/datagram.h"

#include <gtest/gtest.h>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint32_t kQkey = 0x1111;

class Datagrams : public EngineTest {
 protected:
  Datagrams() { start(left), start(right); }

  void start(End& end) {
    QpAttributes attributes;
    attributes.state = QpState::kInit;
    attributes.qkey = kQkey;
    attributes.port = 1;
    EXPECT_TRUE(end.engine.modify(*end.qp, attributes,
                                  kMaskState | kMaskPkeyIndex | kMaskPort | kMaskQkey, now));
    attributes.state = QpState::kRtr;
    EXPECT_TRUE(end.engine.modify(*end.qp, attributes, kMaskState, now));
    attributes.state = QpState::kRts;
    EXPECT_TRUE(end.engine.modify(*end.qp, attributes, kMaskState | kMaskSqPsn, now));
  }

  SendRequest to_right(std::uint64_t id, std::uint32_t qkey = kQkey) {
    return {.id = id,
            .opcode = SendOpcode::kSendWithImm,
            .signaled = true,
            .immediate = 3,
            .target = {
                .path = {.source = left.source, .destination = right.source, .traffic_class = 0x20},
                .qp_number = right.qpn,
                .qkey = qkey}};
  }

  /// Returns how many were useful to the receiver.
  std::size_t transfer() {
    std::size_t useful = 0;
    for (const Datagram& datagram : collect(left)) useful += deliver(right, datagram).useful;
    return useful;
  }

  End left{0x7F000001, 0x111, QpType::kUd};
  End right{0x7F000002, 0x222, QpType::kUd};
};

TEST_F(Datagrams, ArriveBehindTheRoutingHeader) {
  fill(left, 0, 300, 1);
  ASSERT_TRUE(right.receive(8, {right.piece(0, 1000)}, now));
  ASSERT_TRUE(left.send(to_right(1), {left.piece(0, 100), left.piece(100, 200)}, now));
  transfer();
  EXPECT_EQ(left.sent.take().id, 1u);
  const Completion completion = right.received.take();
  EXPECT_EQ(completion.byte_count, 340u);
  EXPECT_TRUE(completion.with_grh);
  EXPECT_TRUE(completion.with_immediate);
  EXPECT_EQ(completion.source_qp, left.qpn);
  EXPECT_EQ(completion.service_level, 0xA);
  EXPECT_TRUE(same(left, 0, right, 40, 300));
  EXPECT_EQ(right.memory[20], std::byte{0x45});
  EXPECT_EQ(right.memory[21], std::byte{0x20});
  EXPECT_EQ(load_be<std::uint32_t>(right.memory.data() + 32), 0x7F000001u);
  EXPECT_EQ(load_be<std::uint32_t>(right.memory.data() + 36), 0x7F000002u);
}

TEST_F(Datagrams, SendsCompleteOnlyWhenTheLinkHasThem) {
  ASSERT_TRUE(left.send(to_right(1), {left.piece(0, 8)}, now));
  std::array<wire::Train, 4> trains;
  ASSERT_EQ(left.engine.poll_transmit(now, trains, Acks::kSend), 1u);
  EXPECT_TRUE(left.sent.completions.empty());
  EXPECT_EQ(left.engine.poll_transmit(now, trains, Acks::kSend), 0u);
  EXPECT_EQ(left.sent.completions.size(), 1u);
}

TEST_F(Datagrams, WrongQkeyNoReceiveAndTooLongAreDropped) {
  ASSERT_TRUE(left.send(to_right(1), {left.piece(0, 8)}, now));
  EXPECT_EQ(transfer(), 0u);
  EXPECT_EQ(right.engine.counters().no_receive, 1u);
  ASSERT_TRUE(right.receive(8, {right.piece(0, 47)}, now));
  ASSERT_TRUE(left.send(to_right(2, kQkey + 1), {left.piece(0, 7)}, now));
  EXPECT_EQ(transfer(), 0u);
  EXPECT_EQ(right.engine.counters().wrong_qkey, 1u);
  ASSERT_TRUE(left.send(to_right(3), {left.piece(0, 8)}, now));
  EXPECT_EQ(transfer(), 0u);
  EXPECT_EQ(right.engine.counters().oversized_datagrams, 1u);
  EXPECT_TRUE(right.received.completions.empty());
  ASSERT_TRUE(
      left.send(to_right(4, 0x8000'0000), {left.piece(0, 7)}, now));  // the queue pair's own Q_Key
  EXPECT_EQ(transfer(), 1u);
  EXPECT_EQ(right.received.take().byte_count, 47u);
}

TEST_F(Datagrams, FailedSendStopsTheSendQueueOnly) {
  ASSERT_TRUE(left.send(to_right(1), {left.piece(0, 8)}, now));
  ASSERT_TRUE(left.send(to_right(2), {left.piece(0, 4097)}, now));
  ASSERT_TRUE(left.send(to_right(3), {left.piece(0, 8)}, now));
  EXPECT_EQ(collect(left).size(), 1u);
  EXPECT_EQ(left.sent.take().status, Status::kSuccess);
  EXPECT_EQ(left.sent.take().status, Status::kLocalLengthError);
  EXPECT_EQ(left.sent.take().status, Status::kFlushError);
  EXPECT_EQ(left.engine.state(*left.qp), QpState::kSqe);
  QpAttributes attributes;
  attributes.state = QpState::kRts;
  ASSERT_TRUE(left.engine.modify(*left.qp, attributes, kMaskState, now));
  ASSERT_TRUE(left.send(to_right(4), {left.piece(0, 8)}, now));
  EXPECT_EQ(collect(left).size(), 1u);
}

}  // namespace
}  // namespace verbena::engine::testing
