// SPDX-License-Identifier: Apache-2.0
//
// A send queue that drains: what was begun before SQD ends, what was not waits.

#include <gtest/gtest.h>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

class Drains : public EngineTest {
 protected:
  Drains() { connect(); }

  void write(std::uint64_t id, std::uint32_t size) {
    ASSERT_TRUE(a.send({.id = id,
                        .opcode = SendOpcode::kWrite,
                        .signaled = true,
                        .remote_address = b.address(0),
                        .rkey = b.key},
                       {a.piece(0, size)}, now));
  }
  void go_to(QpState state, std::uint32_t beside = 0) {
    QpAttributes attributes;
    attributes.state = state;
    attributes.sqd_notify = true;
    attributes.retry_count = 3;
    ASSERT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState | beside, now));
  }
  void drain() { go_to(QpState::kSqd, kMaskSqdNotify); }
  [[nodiscard]] bool draining() const { return a.engine.attributes(*a.qp).sq_draining; }
  [[nodiscard]] bool was_told() {
    const auto event = a.engine.poll_event();
    EXPECT_TRUE(!event || event->kind == EventKind::kSendQueueDrained);
    return event.has_value();
  }
};

TEST_F(Drains, AtOnceWhereNothingWasBegun) {
  EXPECT_FALSE(draining());
  drain();
  EXPECT_FALSE(draining());
  EXPECT_TRUE(was_told());
  write(1, 100);
  EXPECT_TRUE(collect(a).empty());
  EXPECT_FALSE(draining()) << "it was not begun";
  go_to(QpState::kRts);
  settle();
  EXPECT_EQ(a.sent.take().id, 1U);
}

TEST_F(Drains, NotBetweenTwoPartsOfAMessage) {
  constexpr std::uint32_t kMoreThanAWindow = 300 << 10;
  write(1, kMoreThanAWindow);
  const auto part = collect(a);
  ASSERT_LT(part.size(), kMoreThanAWindow / 1024) << "it fits into the window";
  drain();
  write(2, 100);
  EXPECT_TRUE(draining());
  for (const Datagram& datagram : part) deliver(b, datagram);
  for (const Datagram& datagram : collect(b)) deliver(a, datagram);
  EXPECT_TRUE(draining()) << "all that has left is acknowledged, but more is to come";
  EXPECT_FALSE(was_told());
  settle();
  EXPECT_EQ(a.sent.take().id, 1U);
  EXPECT_TRUE(a.sent.completions.empty());
  EXPECT_FALSE(draining());
  EXPECT_TRUE(was_told());
}

TEST_F(Drains, NotAheadOfARequestThatHasFailedHere) {
  write(1, 100);
  ASSERT_TRUE(
      a.send({.id = 2, .opcode = SendOpcode::kLocalInvalidate, .invalidate_rkey = 1}, {}, now));
  const auto begun = collect(a);
  drain();
  for (const Datagram& datagram : begun) deliver(b, datagram);
  for (const Datagram& datagram : collect(b)) deliver(a, datagram);
  EXPECT_EQ(a.sent.take().id, 1U);
  EXPECT_TRUE(draining());
  EXPECT_FALSE(was_told());
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kLocalQpOperationError);
  EXPECT_EQ(a.engine.state(*a.qp), QpState::kErr);
}

TEST_F(Drains, AndTellsEachTime) {
  for (std::uint64_t id = 1; id <= 2; ++id) {
    write(id, 100);
    const auto begun = collect(a);
    drain();
    EXPECT_FALSE(was_told());
    now = a.engine.poll_timeout();
    a.engine.handle_timeout(now);
    EXPECT_TRUE(draining()) << "what got lost is sent again";
    settle();
    EXPECT_EQ(a.sent.take().id, id);
    EXPECT_TRUE(was_told());
    EXPECT_FALSE(was_told());
    go_to(QpState::kRts);
  }
}

TEST_F(Drains, AndTellsWhoAsksOnly) {
  drain();
  EXPECT_TRUE(was_told());
  go_to(QpState::kRts);
  go_to(QpState::kSqd);
  EXPECT_FALSE(was_told());
}

TEST_F(Drains, WhatIsSetMeanwhileHoldsFromThenOn) {
  go_to(QpState::kSqd);
  QpAttributes none;
  ASSERT_TRUE(a.engine.modify(*a.qp, none, kMaskRetryCount, now));
  go_to(QpState::kSqd, kMaskRetryCount);
  go_to(QpState::kRts);
  write(1, 100);
  int lost = 0;
  filter = [&lost](const Datagram&, bool) { return lost++ >= 2; };
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

}  // namespace
}  // namespace verbena::engine::testing
