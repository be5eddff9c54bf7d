// SPDX-License-Identifier: Apache-2.0
#include "verbena/backoff.h"

#include <gtest/gtest.h>

#include <limits>

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;

TEST(Backoff, GrowsToTheLargest) {
  const backoff_policy policy{.initial = 100ms, .factor = 2, .largest = 1000ms, .jitter = 0};
  EXPECT_EQ(policy.after(0, 0), 0ms);
  EXPECT_EQ(policy.after(1, 0), 100ms);
  EXPECT_EQ(policy.after(2, 0), 200ms);
  EXPECT_EQ(policy.after(4, 0), 800ms);
  EXPECT_EQ(policy.after(5, 0), 1000ms);
  EXPECT_EQ(policy.after(std::numeric_limits<unsigned>::max(), 0), 1000ms);
}

TEST(Backoff, ChanceDecidesItsShareOfEachWait) {
  const backoff_policy policy{.initial = 100ms, .factor = 2, .largest = 1000ms, .jitter = 0.25};
  EXPECT_EQ(policy.after(1, 0), 100ms);
  EXPECT_EQ(policy.after(1, 0.5), 88ms);
  EXPECT_EQ(policy.after(1, 1), 75ms);
  EXPECT_EQ(policy.after(9, 1), 750ms);
  EXPECT_EQ(policy.after(9, -1), 1000ms);
  const backoff_policy all{.initial = 100ms, .jitter = 1};
  EXPECT_EQ(all.after(1, 1), 0ms);
}

TEST(Backoff, APolicyThatDoesNotFitIsRefused) {
  EXPECT_TRUE(backoff_policy().check());
  EXPECT_TRUE((backoff_policy{.initial = 0ms, .factor = 1, .largest = 0ms, .jitter = 1}.check()));
  for (const backoff_policy& wrong :
       {backoff_policy{.initial = -1ms}, backoff_policy{.initial = 2ms, .largest = 1ms},
        backoff_policy{.factor = 0.5}, backoff_policy{.jitter = 1.5}, backoff_policy{.jitter = -1},
        backoff_policy{.factor = std::numeric_limits<double>::quiet_NaN()},
        backoff_policy{.factor = std::numeric_limits<double>::infinity()}}) {
    const auto refused = wrong.check();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), std::errc::invalid_argument);
    EXPECT_NE(refused.error().context(), "");
  }
}

TEST(Backoff, TheSystemHasTimeAndChance) {
  retry_environment& here = retry_environment::system();
  EXPECT_EQ(&here, &retry_environment::system());
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    const double one = here.chance();
    EXPECT_GE(one, 0);
    EXPECT_LT(one, 1);
    sum += one;
  }
  EXPECT_GT(sum, 0);
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  const auto until = here.now() + 1ms;
  EXPECT_FALSE(here.wait(lock, changed, {}, until, [] { return false; }));
  EXPECT_GE(here.now(), until);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(here.wait(lock, changed, stop.get_token(), {}, [] { return false; }));
  EXPECT_TRUE(here.wait(lock, changed, {}, {}, [] { return true; }));
}

}  // namespace
}  // namespace verbena::verbs
