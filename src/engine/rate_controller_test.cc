// SPDX-License-Identifier: Apache-2.0
#include "engine/rate_controller.h"

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kGigabit = 1'000'000'000;

class RateControllerTest : public ::testing::Test {
 protected:
  RateControllerTest() { config_.line_rate = 40 * kGigabit; }

  CongestionConfig config_{};
  RateController controller_{config_};
  Time now_{};
};

TEST_F(RateControllerTest, NothingHoldsItBackBeforeTheFirstCnp) {
  EXPECT_FALSE(controller_.limited());
  controller_.sent(1 << 30, now_ + 1s);
  EXPECT_EQ(controller_.rate(now_ + 2s), config_.line_rate);
}

TEST_F(RateControllerTest, TheFirstCnpHalvesTheLineRateAndLaterOnesCutByHalfOfAlpha) {
  controller_.handle_cnp(now_);
  EXPECT_TRUE(controller_.limited());
  EXPECT_EQ(controller_.rate(now_), 20 * kGigabit);
  controller_.handle_cnp(now_);  // alpha is (1 - g) + g = 1
  EXPECT_EQ(controller_.rate(now_), 10 * kGigabit);
}

TEST_F(RateControllerTest, TimeWithoutCnpsMakesTheNextCutLessDeep) {
  config_.gain = 16;
  config_.increase_interval = 1h;  // no growth in between
  controller_.handle_cnp(now_);
  now_ += 10 * config_.alpha_interval;
  controller_.handle_cnp(now_);
  // alpha = (15/16)^10 = 0.5245 of the 20 Gbit/s, half of it taken.
  EXPECT_NEAR(static_cast<double>(controller_.rate(now_)), 20e9 * (1 - 0.5245 / 2), 1e6);
}

TEST_F(RateControllerTest, FastRecoveryHalvesTheDistanceToWhereTheCutCameFrom) {
  controller_.handle_cnp(now_);
  controller_.handle_cnp(now_);  // from 20 to 10
  const double expected[] = {15e9, 17.5e9, 18.75e9, 19.375e9};
  for (const double rate : expected) {
    now_ += config_.increase_interval;
    EXPECT_NEAR(static_cast<double>(controller_.rate(now_)), rate, 10);
  }
  // From the fifth event on the target itself moves, by a step each time.
  now_ += config_.increase_interval;
  EXPECT_NEAR(static_cast<double>(controller_.rate(now_)), (19.375e9 + 20.04e9) / 2, 10);
}

TEST_F(RateControllerTest, BytesAreEventsAsTimeIsAndBothTogetherMakeTheLongStep) {
  controller_.handle_cnp(now_);
  controller_.handle_cnp(now_);
  controller_.sent(config_.increase_bytes - 1, now_);
  EXPECT_EQ(controller_.rate(now_), 10 * kGigabit);
  controller_.sent(1, now_);
  EXPECT_EQ(controller_.rate(now_), 15 * kGigabit);
  // Each counter's sixth event: no target beyond 20 before the fifth of either, and 40 Mbit/s at a
  // time until both are past it.
  controller_.sent(5 * config_.increase_bytes, now_);
  now_ += 5 * config_.increase_interval;
  const std::uint64_t before = controller_.rate(now_);
  EXPECT_LT(before, 20 * kGigabit + 8 * config_.step);
  now_ += config_.increase_interval;
  EXPECT_GE(controller_.rate(now_), before + config_.hyper_step / 2);
}

TEST_F(RateControllerTest, WithoutCnpsItIsFreeAgain) {
  controller_.handle_cnp(now_);
  now_ += 1s;
  EXPECT_EQ(controller_.rate(now_), config_.line_rate);
  EXPECT_FALSE(controller_.limited());
}

TEST_F(RateControllerTest, AFloodOfCnpsEndsAtTheLeastRateAndIsSurvived) {
  for (int i = 0; i < 10'000; ++i) controller_.handle_cnp(now_ += 1us);
  EXPECT_EQ(controller_.rate(now_), config_.min_rate);
  now_ += 10s;
  EXPECT_FALSE(controller_.rate(now_) < config_.line_rate);
}

TEST_F(RateControllerTest, ResetForgets) {
  config_.increase_interval = 1h;
  controller_.handle_cnp(now_);
  now_ += 1s;
  controller_.handle_cnp(now_);  // hardly a cut: alpha is next to nothing
  EXPECT_GT(controller_.rate(now_), 19 * kGigabit);
  controller_.reset();
  EXPECT_FALSE(controller_.limited());
  controller_.handle_cnp(now_);
  EXPECT_EQ(controller_.rate(now_), 20 * kGigabit);
}

}  // namespace
}  // namespace verbena::engine
