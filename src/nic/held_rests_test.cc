// SPDX-License-Identifier: Apache-2.0
// Packets that fill no whole send and wait for the next request.
#include <gtest/gtest.h>

#include "nic/nic.h"
#include "nic/shard.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kMtu = 1024;
constexpr std::uint32_t kMessage = 10 * kMtu;

class HeldRests : public testing::ConnectedEnds {
 protected:
  HeldRests() {
    for (std::uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(b.receive(i, {b.piece(0, kMessage)}));
    for (std::uint32_t i = 0; i < 70; ++i) EXPECT_TRUE(a.poll(a.send_cq).empty());
    EXPECT_TRUE(a.nic->poll_state().polled(host.now()));
  }
  ~HeldRests() override { host.settle(); }
  void send() {
    ASSERT_TRUE(a.send({.id = 1, .opcode = engine::SendOpcode::kSend}, {a.piece(0, kMessage)}));
  }
};

TEST_F(HeldRests, LeaveWithTheSecondPoll) {
  send();
  EXPECT_EQ(network.sent(), 10U) << "a lone message";
  send();
  EXPECT_EQ(network.sent(), 10U);
  EXPECT_TRUE(a.poll(a.send_cq).empty());
  EXPECT_EQ(network.sent(), 10U) << "what posts and polls in turn posts again";
  EXPECT_TRUE(a.poll(a.send_cq).empty());
  EXPECT_EQ(network.sent(), 20U);
}

TEST_F(HeldRests, LeaveWithThePostThatFillsASend) {
  for (int i = 0; i < 8; ++i) send();
  EXPECT_EQ(network.sent(), 10U + 62U);
}

TEST_F(HeldRests, LeaveWhenNobodyComesBack) {
  send();
  send();
  const auto timeout = a.nic->next_timeout();
  ASSERT_TRUE(timeout);
  EXPECT_LE(*timeout, host.now() + Shard::kHeldRest);
  host.settle();
  EXPECT_EQ(a.poll(a.send_cq).size(), 2U);
}

TEST_F(HeldRests, LeaveBeforeAThreadSleeps) {
  send();
  send();
  ASSERT_TRUE(a.nic->arm(a.send_cq, false));
  EXPECT_EQ(network.sent(), 20U);
}

TEST_F(HeldRests, DoNotWaitForLongWhereAllPostAndPoll) {
  send();
  send();
  for (int i = 0; i < 200 && network.sent() == 10U; ++i) {
    b.nic->ring_sends(b.qp);
    ASSERT_TRUE(a.nic->post_receive(a.qp, {.id = 9, .pieces = {}}));
    a.nic->ring_sends(a.qp);
    host.clock += 20us;
    static_cast<void>(a.poll(a.receive_cq));
  }
  EXPECT_EQ(network.sent(), 20U);
}

TEST_F(HeldRests, AreNotHeldForAProgramThatDoesNotPoll) {
  host.clock += 1ms;
  send();
  send();
  EXPECT_EQ(network.sent(), 20U);
}

}  // namespace
}  // namespace verbena::nic
