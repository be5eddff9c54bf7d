// SPDX-License-Identifier: Apache-2.0
#include "sim/cm_run.h"

#include <gtest/gtest.h>

namespace verbena::sim {
namespace {

TEST(CmRun, WhoConnectsIsConnectedOrToldWhyNot) {
  CmReport sum;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const CmReport report = run_cm(make_cm_plan(seed));
    EXPECT_EQ(report.failure, "") << "seed " << seed;
    sum.connected += report.connected;
    sum.refused += report.refused;
    sum.unanswered += report.unanswered;
    sum.resolved += report.resolved;
    sum.lost += report.lost;
  }
  EXPECT_GE(sum.connected, 1000U);
  EXPECT_GE(sum.refused, 500U);
  EXPECT_GE(sum.unanswered, 50U);
  EXPECT_GE(sum.resolved, 500U);
  EXPECT_GE(sum.lost, 1000U);
}

/// Its client asks the server to wait for 69 s and is ready at once; its RTU and the REP that comes
/// again are both lost.
TEST(CmRun, AServerThatWasAskedToWaitMayHearLate) {
  EXPECT_EQ(run_cm(make_cm_plan(80001784)).failure, "");
}

TEST(CmRun, ARequestMayComeAgainBehindItsEnd) {
  EXPECT_EQ(run_cm(make_cm_plan(20002336)).failure, "");
}

TEST(CmRun, AReplyMayBeOfAnEarlierTry) { EXPECT_EQ(run_cm(make_cm_plan(30007884)).failure, ""); }

TEST(CmRun, TheSameSeedIsTheSameRun) {
  EXPECT_EQ(run_cm(make_cm_plan(7)).hash, run_cm(make_cm_plan(7)).hash);
  EXPECT_NE(run_cm(make_cm_plan(7)).hash, run_cm(make_cm_plan(8)).hash);
}

}  // namespace
}  // namespace verbena::sim
