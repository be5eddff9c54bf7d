// SPDX-License-Identifier: Apache-2.0
// Events of completion queues, and waiting for them.
#include <gtest/gtest.h>

#include "nic/nic.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using CompletionEvents = testing::ConnectedEnds;

TEST_F(CompletionEvents, ArmedQueueNotifiesOverTheChannel) {
  ASSERT_TRUE(b.nic->arm(b.receive_cq, false));
  ASSERT_TRUE(b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(0, 8)}));
  const auto event = b.nic->next_event(b.channel);
  ASSERT_TRUE(event);
  EXPECT_EQ(*event, &b.receive_cookie);
  EXPECT_EQ(b.poll(b.receive_cq).size(), 1U);
  b.nic->acknowledge(b.receive_cq, 1);
}

TEST_F(CompletionEvents, ArmingReceivesWhatHadArrived) {
  ASSERT_TRUE(b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(0, 8)}));  // on its way: b has not looked
  ASSERT_TRUE(b.nic->arm(b.receive_cq, false));
  EXPECT_EQ(static_cast<testing::TestNotifier&>(b.nic->notifier(b.channel)).count, 1);
  EXPECT_TRUE(b.nic->next_event(b.channel));
  b.nic->acknowledge(b.receive_cq, 1);
}

TEST_F(CompletionEvents, WaitingForNothingSaysSo) {
  auto& notifier = static_cast<testing::TestNotifier&>(b.nic->notifier(b.channel));
  EXPECT_EQ(b.nic->next_event(b.channel).error().condition,
            std::errc::resource_deadlock_would_occur);
  host.interrupt = true;
  EXPECT_EQ(b.nic->next_event(b.channel).error().condition, std::errc::interrupted);
  notifier.is_blocking = false;
  EXPECT_EQ(b.nic->next_event(b.channel).error().condition, std::errc::operation_would_block);
  static_cast<testing::TestNotifier&>(b.nic->async_notifier()).is_blocking = false;
  EXPECT_EQ(b.nic->next_async_event().error().condition, std::errc::operation_would_block);
}

TEST_F(CompletionEvents, DestroyingAQueueForgetsItsEvents) {
  CompletionQueue* const cq = a.nic->create_cq(4, a.channel, nullptr).value();
  QpInit init = a.init;
  init.send_cq = init.receive_cq = cq;
  QueuePair* const qp = a.nic->create_qp(init, nullptr).value();
  EXPECT_EQ(a.nic->destroy_cq(cq).error().condition, std::errc::device_or_resource_busy);
  ASSERT_TRUE(a.nic->arm(cq, false));
  engine::QpAttributes attributes;
  attributes.state = engine::QpState::kInit;
  attributes.port = 1;
  ASSERT_TRUE(a.nic->modify_qp(
      qp, attributes,
      engine::kMaskState | engine::kMaskPkeyIndex | engine::kMaskPort | engine::kMaskAccess));
  attributes.state = engine::QpState::kErr;
  ASSERT_TRUE(a.nic->modify_qp(qp, attributes, engine::kMaskState));
  ASSERT_TRUE(a.nic->post_receive(qp, {.id = 1}));
  a.nic->ring_receives(qp);
  auto& notifier = static_cast<testing::TestNotifier&>(a.nic->notifier(a.channel));
  EXPECT_EQ(notifier.count, 1);
  EXPECT_TRUE(a.nic->destroy_qp(qp));
  EXPECT_TRUE(a.nic->destroy_cq(cq));
  EXPECT_EQ(notifier.count, 0);
}

}  // namespace
}  // namespace verbena::nic
