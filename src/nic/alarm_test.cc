// SPDX-License-Identifier: Apache-2.0
#include "nic/alarm.h"

#include <gtest/gtest.h>

#include "nic/poll_state.h"

namespace verbena::nic {
namespace {

using namespace std::chrono_literals;

TEST(Alarm, WakesOnlyASleeperWhoWouldBeLate) {
  Alarm alarm;
  const Time start{1s};
  EXPECT_FALSE(alarm.set(start));  // nobody has asked yet
  EXPECT_EQ(alarm.promise(std::nullopt), start);
  EXPECT_FALSE(alarm.set(start + 5ms));
  EXPECT_TRUE(alarm.due(start + 5ms));
  EXPECT_FALSE(alarm.due(start + 4ms));
  EXPECT_FALSE(alarm.set(start + 1ms));  // the sleeper comes back at `start`
  EXPECT_TRUE(alarm.set(start - 1ms));
  EXPECT_FALSE(alarm.set(start - 1ms + 1ns));
  EXPECT_TRUE(alarm.set(start - 2ms));
  EXPECT_FALSE(alarm.set(std::nullopt));
  EXPECT_EQ(alarm.promise(std::nullopt), std::nullopt);
  EXPECT_TRUE(alarm.set(start + 10s));
}

TEST(Alarm, SleeperWhoComesBackAnyhowIsNotWoken) {
  Alarm alarm;
  const Time start{1s};
  EXPECT_EQ(alarm.promise(start + 100us), std::nullopt);
  EXPECT_FALSE(alarm.set(start + 20ms));
  EXPECT_FALSE(alarm.set(start + 100us));
  EXPECT_TRUE(alarm.set(start + 99us));
}

TEST(PollState, PolledAfterManyPollsWithoutAGap) {
  PollState state;
  Time now{1s};
  for (std::uint32_t i = 0; i < PollState::kPolls; ++i) {
    EXPECT_FALSE(state.polled(now));
    now += 10us;
    state.poll(now);
  }
  EXPECT_TRUE(state.polled(now));
  EXPECT_TRUE(state.polled(now + 20us));
  EXPECT_FALSE(state.polled(now + 21us));
  state.poll(now + 11us);  // a gap begins the count anew
  EXPECT_FALSE(state.polled(now + 11us));
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

}  // namespace
}  // namespace verbena::nic
