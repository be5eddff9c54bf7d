// SPDX-License-Identifier: Apache-2.0
//
// Moderation: events of a completion queue that wait for more completions, by a clock that jumps.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "nic/completion_queue.h"
#include "nic/held_events.h"
#include "nic/test_end.h"
#include "nic/test_host.h"

namespace verbena::nic {
namespace {

using engine::SendOpcode;
using testing::End;
using namespace std::chrono_literals;

class Silent final : public OverrunListener {
 public:
  void overrun(CompletionQueue&) override {}
};

class Moderation : public ::testing::Test {
 protected:
  Moderation() : channel(std::make_unique<testing::TestNotifier>()) {
    cq.moderate({.count = 3, .period = 16us}, held);
  }

  void complete(bool solicited = false) {
    EXPECT_TRUE(cq.complete({.id = 1, .solicited = solicited}));
  }
  /// Lets time pass, as the shards do.
  void pass(Duration time) {
    host.clock += time;
    held.release(host.clock);
  }
  [[nodiscard]] bool told() { return channel.take().has_value(); }

  testing::Network network;
  testing::StepHost host{network};
  HeldEvents held{host};
  CompletionChannel channel;
  Silent listener;
  CompletionQueue cq{64, &channel, nullptr, listener};
};

TEST_F(Moderation, ThoseOfARowCountEach) {
  const std::vector<std::uint64_t> ids{1, 2};
  cq.arm(false);
  EXPECT_EQ(cq.complete_row({}, ids), 2U);
  EXPECT_FALSE(told());
  EXPECT_EQ(cq.complete_row({}, ids), 2U);
  EXPECT_TRUE(told());
  EXPECT_FALSE(told());
}

TEST_F(Moderation, AnEventWaitsForSoManyCompletions) {
  cq.arm(false);
  complete();
  complete();
  EXPECT_FALSE(told());
  complete();
  EXPECT_TRUE(told());
  EXPECT_EQ(held.next(), kNever);
  for (int i = 0; i < 5; ++i) complete();
  pass(1s);
  EXPECT_FALSE(told());  // nothing was asked for
}

TEST_F(Moderation, AnEventWaitsNoLongerThanThePeriodFromTheFirst) {
  cq.arm(false);
  pass(100us);
  complete();
  EXPECT_EQ(held.next(), host.clock + 16us);
  pass(10us);
  complete();
  pass(5us);
  EXPECT_FALSE(told());
  pass(1us);
  EXPECT_TRUE(told());
  EXPECT_EQ(held.next(), kNever);
  complete();
  pass(1s);
  EXPECT_FALSE(told());
}

TEST_F(Moderation, EachArmingCountsAnew) {
  for (int i = 0; i < 2; ++i) {
    cq.arm(false);
    complete();
    pass(16us);
    EXPECT_TRUE(told());
  }
  cq.arm(false);
  complete();
  complete();
  EXPECT_FALSE(told());
  complete();
  EXPECT_TRUE(told());
}

TEST_F(Moderation, ArmingAgainWhileTheEventWaitsChangesNothing) {
  cq.arm(false);
  complete();
  cq.arm(false);
  cq.arm(true);
  complete();
  complete();
  EXPECT_TRUE(told());
  complete();
  pass(1s);
  EXPECT_FALSE(told());
}

TEST_F(Moderation, AQueueArmedForSolicitedOnesTellsAtOnce) {
  cq.arm(true);
  complete();
  EXPECT_EQ(held.next(), kNever);
  complete(true);
  EXPECT_TRUE(told());
}

TEST_F(Moderation, ItIsOffWhereOneCompletionIsEnoughOrNoTimeMayPass) {
  for (const CqModeration& off :
       {CqModeration{.count = 0, .period = 16us}, CqModeration{.count = 1, .period = 16us},
        CqModeration{.count = 3, .period = 0us}}) {
    cq.moderate(off, held);
    cq.arm(false);
    complete();
    EXPECT_TRUE(told());
  }
}

TEST_F(Moderation, AChangeLetsGoWhatWaits) {
  cq.arm(false);
  complete();
  cq.moderate({}, held);
  EXPECT_TRUE(told());
  EXPECT_EQ(held.next(), kNever);
  cq.arm(false);
  complete();
  EXPECT_TRUE(told());
}

TEST_F(Moderation, NothingOfADestroyedQueueWaits) {
  CompletionQueue other(4, &channel, nullptr, listener);
  other.moderate({.count = 2, .period = 16us}, held);
  other.arm(false);
  EXPECT_TRUE(other.complete({.id = 1}));
  other.silence();
  EXPECT_EQ(held.next(), kNever);
  pass(1s);
  EXPECT_FALSE(told());
}

TEST_F(Moderation, TheEarliestOfSeveralIsNext) {
  CompletionQueue other(4, &channel, &other, listener);
  other.moderate({.count = 2, .period = 5us}, held);
  cq.arm(false);
  other.arm(false);
  complete();
  EXPECT_TRUE(other.complete({.id = 1}));
  EXPECT_EQ(held.next(), host.clock + 5us);
  pass(5us);
  EXPECT_EQ(channel.take(), &other);
  EXPECT_EQ(held.next(), host.clock + 11us);
  EXPECT_FALSE(told());
  pass(11us);
  EXPECT_TRUE(told());
}

TEST_F(Moderation, WithoutAChannelNothingIsHeld) {
  CompletionQueue alone(4, nullptr, nullptr, listener);
  alone.moderate({.count = 2, .period = 16us}, held);
  alone.arm(false);
  EXPECT_TRUE(alone.complete({.id = 1}));
  EXPECT_EQ(held.next(), kNever);
}

class ModeratedPair : public ::testing::Test {
 protected:
  ModeratedPair() { connect(a, b); }

  void write() {
    ASSERT_TRUE(a.send(
        {.id = 1, .opcode = SendOpcode::kWrite, .remote_address = b.base(), .rkey = b.region->key},
        {a.piece(0, 8)}));
  }

  testing::Network network;
  testing::StepHost host{network};
  End a{host, "127.0.0.1"};
  End b{host, "127.0.0.2"};
};

TEST_F(ModeratedPair, WhoWaitsIsWokenWhenTheTimeIsThere) {
  a.nic->moderate_cq(a.send_cq, {.count = 10, .period = 50ms});
  ASSERT_TRUE(a.nic->arm(a.send_cq, false));
  const Time before = host.clock;
  write();
  const auto event = a.nic->next_event(a.channel);
  ASSERT_TRUE(event);
  EXPECT_EQ(*event, &a.send_cookie);
  EXPECT_GE(host.clock - before, 50ms);
  EXPECT_LT(host.clock - before, 60ms);
  a.nic->acknowledge(a.send_cq, 1);
}

TEST_F(ModeratedPair, WhoWaitsIsWokenWhenEnoughAreThere) {
  a.nic->moderate_cq(a.send_cq, {.count = 3, .period = 65ms});
  ASSERT_TRUE(a.nic->arm(a.send_cq, false));
  const Time before = host.clock;
  for (int i = 0; i < 3; ++i) write();
  ASSERT_TRUE(a.nic->next_event(a.channel));
  EXPECT_LT(host.clock - before, 10ms);
  a.nic->acknowledge(a.send_cq, 1);
}

TEST_F(ModeratedPair, TheHostIsWokenForATimeThatIsEarlierThanItsOwn) {
  a.nic->moderate_cq(a.send_cq, {.count = 10, .period = 50us});
  ASSERT_TRUE(a.nic->arm(a.send_cq, false));
  write();
  while (b.nic->progress(host.clock, 64).worked) {}
  static_cast<void>(a.nic->next_timeout());
  const int wakes = host.wakes;
  EXPECT_EQ(a.poll(a.send_cq).size(), 1U);
  EXPECT_GT(host.wakes, wakes);
  EXPECT_EQ(a.nic->next_timeout(), host.clock + 50us);
}

}  // namespace
}  // namespace verbena::nic
