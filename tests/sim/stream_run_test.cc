// SPDX-License-Identifier: Apache-2.0
#include "sim/stream_run.h"

#include <gtest/gtest.h>

namespace verbena::sim {
namespace {

void run_all(bool same_host) {
  StreamReport sum;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    StreamPlan plan = make_stream_plan(seed);
    plan.same_host = same_host;
    const StreamReport report = run_stream(plan);
    EXPECT_EQ(report.failure, "") << "seed " << seed;
    sum.read[0] += report.read[0] + report.read[1];
    sum.stalls[0] += report.stalls[0] + report.stalls[1];
    sum.told += report.told;
    sum.troubles += report.troubles;
    sum.by_ring += report.by_ring;
  }
  EXPECT_GE(sum.read[0], 3U << 20);
  EXPECT_GE(sum.stalls[0], 30U);
  EXPECT_GE(sum.told, 10U);
  EXPECT_GE(sum.troubles, 7U);
  EXPECT_EQ(sum.by_ring != 0, same_host);
}

TEST(StreamRun, WhatIsWrittenIsReadWhateverTheNetworkDoes) { run_all(false); }

TEST(StreamRun, WhatIsWrittenIsReadOnOneMachineToo) { run_all(true); }

TEST(StreamRun, TheSameSeedIsTheSameRun) {
  EXPECT_EQ(run_stream(make_stream_plan(3)).hash, run_stream(make_stream_plan(3)).hash);
  EXPECT_NE(run_stream(make_stream_plan(3)).hash, run_stream(make_stream_plan(4)).hash);
}

}  // namespace
}  // namespace verbena::sim
