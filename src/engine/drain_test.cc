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
  void go_to(QpState state) {
    QpAttributes attributes;
    attributes.state = state;
    attributes.sqd_notify = true;
    const bool drains = state == QpState::kSqd;
    ASSERT_TRUE(
        a.engine.modify(*a.qp, attributes, kMaskState | (drains ? kMaskSqdNotify : 0u), now));
  }
  [[nodiscard]] bool draining() const { return a.engine.attributes(*a.qp).sq_draining; }
  [[nodiscard]] bool was_told() {
    const auto event = a.engine.poll_event();
    EXPECT_TRUE(!event || event->kind == EventKind::kSendQueueDrained);
    return event.has_value();
  }
};

TEST_F(Drains, AtOnceWhereNothingWasBegun) {
  EXPECT_FALSE(draining());
  go_to(QpState::kSqd);
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
  go_to(QpState::kSqd);
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

}  // namespace
}  // namespace verbena::engine::testing
