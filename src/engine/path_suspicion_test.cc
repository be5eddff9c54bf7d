// SPDX-License-Identifier: Apache-2.0
//
// When a path is suspected to lose whole sends, and by which end (nic.md, "Trains").
#include <gtest/gtest.h>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

class PathSuspicion : public EngineTest {
 protected:
  /// Of the first end, for the second one's memory.
  [[nodiscard]] SendRequest request(SendOpcode opcode) const {
    return {
        .id = 1, .opcode = opcode, .signaled = true, .remote_address = b.address(0), .rkey = b.key};
  }
};

/// Whether an end says that its path is suspected; takes all its events.
bool suspects_path(End& end) {
  bool suspected = false;
  while (const auto event = end.engine.poll_event())
    suspected = suspected || event->kind == EventKind::kPathSuspected;
  return suspected;
}

TEST_F(PathSuspicion, TwoTimeOutsWithoutProgressMakeThePathSuspected) {
  connect({.mtu = 256, .timeout = 14, .retries = 7});
  fill(a, 0, 4000, 1);
  int losses = 1;
  filter = [&](const Datagram&, bool to_b) { return !to_b || losses == 0; };
  ASSERT_TRUE(a.send(request(SendOpcode::kWrite), {a.piece(0, 4000)}, now));
  const auto time_out = [&] {
    now = a.engine.poll_timeout();
    a.engine.handle_timeout(now);
  };
  exchange();
  time_out();
  EXPECT_FALSE(suspects_path(a));
  exchange();
  time_out();
  EXPECT_TRUE(suspects_path(a));
  // Once until there was progress.
  exchange();
  time_out();
  EXPECT_FALSE(suspects_path(a));
  losses = 0;
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_FALSE(suspects_path(a));
  EXPECT_FALSE(suspects_path(b));
}

TEST_F(PathSuspicion, ASinglePacketThatIsLostSaysNothingAboutWholeSends) {
  connect({.timeout = 14, .retries = 3});
  filter = [&](const Datagram&, bool to_b) { return !to_b; };
  ASSERT_TRUE(a.send(request(SendOpcode::kWrite), {a.piece(0, 100)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kRetryExceeded);
  EXPECT_FALSE(suspects_path(a));
}

TEST_F(PathSuspicion, ProgressBetweenTimeOutsClearsThePath) {
  connect({.mtu = 256, .psn = 100, .timeout = 14, .retries = 7});
  fill(a, 0, 4000, 1);
  // Each time one packet gets through, and the last one, for which the responder says so.
  constexpr std::uint32_t kLast = 115;
  std::uint32_t next = 100;
  bool open = true;
  filter = [&](const Datagram& datagram, bool to_b) {
    const std::uint32_t psn = wire::parse(datagram.bytes).value().bth.psn;
    if (!to_b || psn == kLast) return true;
    if (!open || psn != next) return false;
    open = false;
    ++next;
    return true;
  };
  ASSERT_TRUE(a.send(request(SendOpcode::kWrite), {a.piece(0, 4000)}, now));
  for (int i = 0; i < 6; ++i) {
    exchange();
    EXPECT_EQ(next, 101U + static_cast<std::uint32_t>(i));
    now = a.engine.poll_timeout();
    a.engine.handle_timeout(now);
    EXPECT_FALSE(suspects_path(a)) << i;
    open = true;
  }
  EXPECT_EQ(a.engine.counters().timeouts, 6U);
}

TEST_F(PathSuspicion, OfAReadTheOneWhoAnswersSuspectsThePath) {
  connect({.mtu = 256, .timeout = 14, .retries = 7});
  fill(b, 0, 4000, 1);
  bool losing = true;
  filter = [&](const Datagram&, bool to_b) { return to_b || !losing; };
  ASSERT_TRUE(a.send(request(SendOpcode::kRead), {a.piece(0, 4000)}, now));
  exchange();
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(suspects_path(b));
    now = a.engine.poll_timeout();
    a.engine.handle_timeout(now);
    exchange();
  }
  EXPECT_TRUE(suspects_path(b));
  EXPECT_FALSE(suspects_path(a));
  losing = false;
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

}  // namespace
}  // namespace verbena::engine::testing
