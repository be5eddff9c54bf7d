// SPDX-License-Identifier: Apache-2.0
#include "nic/alarm.h"

#include <gtest/gtest.h>

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
  EXPECT_FALSE(alarm.set(kNever));
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

}  // namespace
}  // namespace verbena::nic
