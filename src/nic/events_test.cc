// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>

#include "nic/async_events.h"
#include "nic/event_ledger.h"
#include "nic/test_host.h"

namespace verbena::nic {
namespace {

class EventsTest : public ::testing::Test {
 protected:
  testing::Network network;
  testing::StepHost host{network};
  AsyncEvents events{std::make_unique<testing::TestNotifier>()};
  EventLedger first;
  EventLedger second;
  int one = 0;
  int two = 0;
};

TEST_F(EventsTest, ComeInOrderAndOnceWhileTheyWait) {
  events.raise({AsyncKind::kQpFatal, &one}, &first);
  events.raise({AsyncKind::kCqError, &two}, &second);
  events.raise({AsyncKind::kQpFatal, &one}, &first);
  events.raise({AsyncKind::kPortActive, nullptr}, nullptr);
  auto event = events.take();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, AsyncKind::kQpFatal);
  EXPECT_EQ(event->cookie, &one);
  events.raise({AsyncKind::kQpFatal, &one}, &first);  // the one before was taken
  EXPECT_EQ(events.take()->kind, AsyncKind::kCqError);
  EXPECT_EQ(events.take()->kind, AsyncKind::kPortActive);
  EXPECT_EQ(events.take()->cookie, &one);
  EXPECT_FALSE(events.take());
  EXPECT_EQ(static_cast<testing::TestNotifier&>(events.notifier()).count, 0);
}

TEST_F(EventsTest, TheLastOfThePortTellsHowItIs) {
  events.raise({AsyncKind::kPortError, nullptr}, nullptr);
  events.raise({AsyncKind::kPortActive, nullptr}, nullptr);
  events.raise({AsyncKind::kPortError, nullptr}, nullptr);
  EXPECT_EQ(static_cast<testing::TestNotifier&>(events.notifier()).count, 2);
  EXPECT_EQ(events.take()->kind, AsyncKind::kPortActive);
  EXPECT_EQ(events.take()->kind, AsyncKind::kPortError);
  EXPECT_FALSE(events.take());
}

TEST_F(EventsTest, PurgeTakesOneObjectsEventsAndTheirSignals) {
  events.raise({AsyncKind::kQpFatal, &one}, &first);
  events.raise({AsyncKind::kCqError, &two}, &second);
  events.raise({AsyncKind::kSendQueueDrained, &one}, &first);
  events.purge(first);
  EXPECT_EQ(static_cast<testing::TestNotifier&>(events.notifier()).count, 1);
  EXPECT_EQ(events.take()->cookie, &two);
  EXPECT_FALSE(events.take());
}

TEST_F(EventsTest, SettleNeedsEveryAcknowledgement) {
  EXPECT_TRUE(first.settle(host));
  first.deliver();
  first.deliver();
  first.acknowledge(1);
  EXPECT_EQ(first.settle(host).error().condition, std::errc::resource_deadlock_would_occur);
  host.interrupt = true;  // a signal does not end the wait
  int calls = 0;
  host.meanwhile = [&] {
    if (++calls == 1) first.acknowledge(1);
  };
  EXPECT_TRUE(first.settle(host));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace verbena::nic
