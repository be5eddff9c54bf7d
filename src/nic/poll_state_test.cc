// SPDX-License-Identifier: Apache-2.0
#include "nic/poll_state.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <optional>

#include "nic/nic.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using namespace std::chrono_literals;

TEST(PollState, PolledAfterManyPollsWithoutAGap) {
  PollState state;
  Time now{1s};
  for (std::uint32_t i = 0; i < PollState::kPolls; ++i) {
    EXPECT_FALSE(state.polled(now));
    now += PollState::kGap;
    state.poll(now);
  }
  EXPECT_TRUE(state.polled(now));
  EXPECT_TRUE(state.polled(now + PollState::kSilence));
  EXPECT_FALSE(state.polled(now + PollState::kSilence + 1ns));
}

TEST(PollState, WhoPolledForLongMayBeInterruptedInACopy) {
  PollState state;
  const Time now{1s};
  for (std::uint32_t i = 1; i < PollState::kManyPolls; ++i) state.poll(now);
  EXPECT_FALSE(state.polled(now + PollState::kSilence + 1ns));
  state.poll(now);
  EXPECT_TRUE(state.polled(now + PollState::kSilenceOfMany));
  EXPECT_FALSE(state.polled(now + PollState::kSilenceOfMany + 1ns));
}

TEST(PollState, AGapTakesSomePollsBack) {
  PollState state;
  Time now{1s};
  for (std::uint32_t i = 0; i < PollState::kPolls; ++i) state.poll(now);
  now += PollState::kGap + 1ns;
  state.poll(now);
  for (std::uint32_t i = 0; i < PollState::kGapCost; ++i) {
    EXPECT_FALSE(state.polled(now));
    state.poll(now);
  }
  EXPECT_TRUE(state.polled(now));
  // Whoever polls less between gaps than a gap costs never gets there.
  for (int i = 0; i < 100; ++i) {
    now += PollState::kGap + 1ns;
    for (std::uint32_t k = 0; k < PollState::kGapCost; ++k) state.poll(now);
  }
  EXPECT_FALSE(state.polled(now));
}

TEST(PollState, SomeGapsInARowDoNotEndWhatWasLong) {
  PollState state;
  Time now{1s};
  for (std::uint32_t i = 0; i < 10 * PollState::kMostPolls; ++i) state.poll(now);
  constexpr std::uint32_t kGaps = (PollState::kMostPolls - PollState::kPolls) / PollState::kGapCost;
  for (std::uint32_t i = 0; i < kGaps; ++i) {
    now += PollState::kGap + 1ns;
    state.poll(now);
    EXPECT_TRUE(state.polled(now)) << i;
  }
  now += PollState::kGap + 1ns;
  state.poll(now);
  EXPECT_FALSE(state.polled(now));
}

TEST(PollState, WhoPolledOftenIsExpectedBackForLonger) {
  PollState state;
  Time now{1s};
  EXPECT_FALSE(state.expected_back(now));
  state.poll(now);
  EXPECT_TRUE(state.expected_back(now + PollState::kBack));
  EXPECT_FALSE(state.expected_back(now + PollState::kBack + 1ns));
  for (std::uint32_t i = 0; i < PollState::kPolls; ++i) state.poll(now);
  EXPECT_TRUE(state.expected_back(now + PollState::kLately));
  EXPECT_FALSE(state.expected_back(now + PollState::kLately + 1ns));
  state.disarm(now);
  EXPECT_FALSE(state.expected_back(now));
}

TEST(PollState, RemembersForAWhileThatSomebodyPolled) {
  PollState state;
  const Time now{1s};
  EXPECT_FALSE(state.polled_lately(now));
  state.poll(now);
  EXPECT_TRUE(state.polled_lately(now + PollState::kLately));
  EXPECT_FALSE(state.polled_lately(now + PollState::kLately + 1ns));
  state.wake_up(now + 1s);
  EXPECT_TRUE(state.polled_lately(now + 1s + PollState::kLately)) << "it finds completions there";
}

TEST(PollState, WhoIsInsideHasNotGone) {
  PollState state;
  const Time now{1s};
  state.poll(now);
  state.enter();
  EXPECT_TRUE(state.polled_lately(now + 1s)) << "it may wait for the processor";
  state.leave();
  EXPECT_FALSE(state.polled_lately(now + 1s));
}

/// This thread on one of the processors that it may use, until the end.
class OnProcessor {
 public:
  explicit OnProcessor(int number) {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(number, &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;
  ~OnProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }

  /// One that this thread may use beside `number`, if there is one.
  [[nodiscard]] static std::optional<int> other_than(int number) {
    cpu_set_t all;
    ::sched_getaffinity(0, sizeof all, &all);
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (i != number && CPU_ISSET(i, &all)) return i;
    return std::nullopt;
  }

 private:
  cpu_set_t before_{};
};

TEST(PollState, RemembersForSomeSlicesWhoWasSeenOnThisProcessor) {
  const OnProcessor here(::sched_getcpu());
  PollState state;
  const Time start{1s};
  EXPECT_FALSE(state.seen_here(start));
  state.poll(start);
  EXPECT_TRUE(state.seen_here(start + PollState::kSeen));
  EXPECT_FALSE(state.seen_here(start + PollState::kSeen + 1ns));
  // Who finds completions there, again and again, does not look at the clock.
  const Time later = start + 1s;
  state.take();
  EXPECT_TRUE(state.seen_here(later));
  EXPECT_TRUE(state.seen_here(later + PollState::kSeen));
  EXPECT_FALSE(state.seen_here(later + PollState::kSeen + 1ns)) << "taken once";
}

TEST(PollState, WhoWaitsForNotificationsIsNotKeptFromTheProcessor) {
  const OnProcessor here(::sched_getcpu());
  PollState state;
  Time now{1s};
  state.poll(now);
  ASSERT_TRUE(state.seen_here(now));
  state.disarm(now);
  EXPECT_FALSE(state.seen_here(now));
  now += PollState::kWaits;
  state.poll(now);
  EXPECT_FALSE(state.seen_here(now));
  EXPECT_TRUE(state.seen_here(now + 1ns)) << "it has not armed for long";
}

TEST(PollState, WhoSleptAndPollsAllTheTimeAgainIsSeen) {
  const OnProcessor here(::sched_getcpu());
  PollState state;
  Time now{1s};
  state.disarm(now);
  for (std::uint32_t i = 1; i < PollState::kPolls; ++i) {
    state.poll(now += 1us);
    ASSERT_FALSE(state.seen_here(now)) << i;
  }
  state.poll(now);
  EXPECT_TRUE(state.seen_here(now));
  state.poll(now += 1ms);
  EXPECT_FALSE(state.polled(now));
  EXPECT_TRUE(state.seen_here(now)) << "until it arms again";
  state.disarm(now);
  EXPECT_FALSE(state.seen_here(now));
  // Likewise with messages so large that each poll counts for several.
  state.poll(now);
  for (std::uint32_t i = 0; i < PollState::kPolls / PollState::kMuchWork; ++i) state.end_poll(now);
  EXPECT_TRUE(state.seen_here(now));
}

TEST(PollState, WhoWasSeenOnAnotherProcessorIsNotInTheWay) {
  const int first = ::sched_getcpu();
  const auto second = OnProcessor::other_than(first);
  if (!second) GTEST_SKIP() << "one processor";
  PollState state;
  const Time now{1s};
  {
    const OnProcessor there(*second);
    state.poll(now);
    EXPECT_TRUE(state.seen_here(now));
  }
  const OnProcessor here(first);
  EXPECT_FALSE(state.seen_here(now));
}

TEST(PollState, RemembersWhoPollsAllTheTimeAndFoundAnotherInside) {
  PollState state;
  const Time now{1s};
  state.poll(now);
  state.turn_away();
  EXPECT_FALSE(state.take_turned_away()) << "it looks in now and then";
  for (std::uint32_t i = 0; i <= PollState::kPolls; ++i) state.poll(now);
  EXPECT_FALSE(state.take_turned_away());
  state.turn_away();
  EXPECT_TRUE(state.take_turned_away());
  EXPECT_FALSE(state.take_turned_away()) << "once";
}

TEST(PollState, WhatAThreadDoesInsideIsNoGap) {
  PollState state;
  Time now{1s};
  for (std::uint32_t i = 0; i <= PollState::kPolls; ++i) state.poll(now);
  state.enter();
  now += 1ms;
  EXPECT_TRUE(state.polled(now));
  state.leave();
  EXPECT_FALSE(state.polled(now));
  state.end_poll(now);
  now += PollState::kGap;
  state.poll(now);
  EXPECT_TRUE(state.polled(now + PollState::kSilence));
  // Posts go on for a while without a poll, and no longer.
  const Time polled = now;
  while (now - polled < PollState::kPosting) {
    now += PollState::kSilence;
    state.end_post(now);
    EXPECT_TRUE(state.polled(now));
  }
  now += PollState::kSilence + 1ns;
  state.end_post(now);
  EXPECT_FALSE(state.polled(now)) << "nobody takes in what comes";
}

TEST(PollState, WhoMovesMuchWithEachPollMakesUpForAGapSoon) {
  PollState state;
  Time now{1s};
  const auto message = [&] {
    now += 1us;
    state.poll(now);
    now += PollState::kSilence;
    state.end_post(now);
  };
  for (std::uint32_t i = 0; i < PollState::kPolls / PollState::kMuchWork; ++i) message();
  EXPECT_TRUE(state.polled(now));
  now += PollState::kGap;
  state.poll(now + 1ns);
  EXPECT_FALSE(state.polled(now + 1ns));
  for (std::uint32_t i = 0; i < PollState::kGapCost / PollState::kMuchWork; ++i) message();
  EXPECT_TRUE(state.polled(now));
  // Not where it does so between other work, nor while it waits for a notification.
  for (int i = 0; i < 100; ++i) {
    now += PollState::kGap;
    message();
  }
  EXPECT_FALSE(state.polled(now));
  EXPECT_FALSE(state.disarm(now));
  for (int i = 0; i < 100; ++i) state.end_post(now);
  EXPECT_FALSE(state.polled(now));
  EXPECT_FALSE(state.expected_back(now));
}

TEST(PollState, AttendedWhileAThreadSleepsAndAWhileAfterIt) {
  PollState state;
  const Time now{1s};
  EXPECT_FALSE(state.attended(now));
  state.fall_asleep();
  state.fall_asleep();
  EXPECT_TRUE(state.slept_on());
  state.wake_up(now);
  EXPECT_TRUE(state.slept_on());
  EXPECT_TRUE(state.attended(now + 1h));
  state.wake_up(now);
  EXPECT_FALSE(state.slept_on());
  EXPECT_TRUE(state.attended(now + PollState::kSilence));
  EXPECT_FALSE(state.attended(now + PollState::kSilence + 1ns));
  EXPECT_EQ(state.sleeps(), 2U);
  EXPECT_FALSE(state.polled(now)) << "nobody polls";
  state.give_up();
  EXPECT_FALSE(state.attended(now));
}

TEST(PollState, ArmingEndsIt) {
  PollState state;
  const Time now{1s};
  for (std::uint32_t i = 0; i < PollState::kPolls + 1; ++i) state.poll(now);
  EXPECT_TRUE(state.polled(now));
  EXPECT_TRUE(state.disarm(now));
  EXPECT_FALSE(state.polled(now));
  EXPECT_FALSE(state.disarm(now));
}

class PollStateOfANic : public testing::ConnectedEnds {};

TEST_F(PollStateOfANic, WhoOnlyTakesCompletionsIsSeen) {
  const OnProcessor here(::sched_getcpu());
  for (std::uint64_t id = 0; id < 2; ++id) {
    ASSERT_TRUE(b.receive(id, {b.piece(0, 64)}));
    ASSERT_TRUE(a.send({.id = id}, {a.piece(0, 8)}));
  }
  const auto take_one = [&] {
    engine::Completion completion;
    return b.nic->poll(b.receive_cq, {&completion, 1}, {}).value();
  };
  PollState& state = b.nic->poll_state();
  ASSERT_EQ(take_one(), 1U);
  host.clock += PollState::kSeen + 1ns;
  EXPECT_FALSE(state.seen_here(host.now()));
  ASSERT_EQ(take_one(), 1U) << "it was there already";
  EXPECT_FALSE(state.polled_lately(host.now()));
  EXPECT_TRUE(state.seen_here(host.now()));
  host.settle();
}

}  // namespace
}  // namespace verbena::nic
