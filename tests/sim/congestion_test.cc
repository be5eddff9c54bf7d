// SPDX-License-Identifier: Apache-2.0
#include "sim/congestion.h"

#include <gtest/gtest.h>

namespace verbena::sim {
namespace {

TEST(Congestion, TwoFlowsShareABottleneckFairlyAndKeepItsQueueShort) {
  bool read = false;
  bool written = false;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const CongestionPlan plan = make_congestion_plan(seed);
    (plan.reads ? read : written) = true;
    const CongestionReport report = run_congestion(plan);
    EXPECT_EQ(judge(plan, report), "") << "seed " << seed;
    EXPECT_GE(report.cnps, 10U) << "seed " << seed;
    EXPECT_GE(report.bottleneck.marked, 10U) << "seed " << seed;
  }
  EXPECT_TRUE(read && written);
}

// Over 40 ms one flow of this seed had 55.4 %: the swing, not the mean.
TEST(Congestion, ItLooksForLongEnoughThatSharesAreNotLuck) {
  const CongestionPlan plan = make_congestion_plan(1068322144);
  EXPECT_EQ(judge(plan, run_congestion(plan)), "");
}

TEST(Congestion, WithoutControlTheQueueIsFullAndDrops) {
  CongestionPlan plan = make_congestion_plan(2);
  plan.reads = false;
  plan.control.on = false;
  plan.early_cnps = 0;
  const CongestionReport report = run_congestion(plan);
  EXPECT_EQ(report.failure, "");
  EXPECT_GE(report.unsettled.longest_queue, plan.bottleneck.queue_bytes * 9 / 10);
  EXPECT_GE(report.unsettled.dropped, 10U);
  EXPECT_EQ(report.unsettled.marked, 0U);
  EXPECT_NE(judge(plan, report), "");
  EXPECT_EQ(report.cnps, 0U);
}

TEST(Congestion, TheSameSeedIsTheSameRun) {
  const CongestionPlan plan = make_congestion_plan(3);
  EXPECT_EQ(run_congestion(plan).hash, run_congestion(plan).hash);
}

}  // namespace
}  // namespace verbena::sim
