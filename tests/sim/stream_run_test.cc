// SPDX-License-Identifier: Apache-2.0
#include "sim/stream_run.h"

#include <gtest/gtest.h>

namespace verbena::sim {
namespace {

TEST(StreamRun, WhatIsWrittenIsReadWhateverTheNetworkDoes) {
  std::uint64_t read = 0;
  std::uint64_t stalls = 0;
  std::uint64_t told = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const StreamReport report = run_stream(make_stream_plan(seed));
    EXPECT_EQ(report.failure, "") << "seed " << seed;
    read += report.read[0] + report.read[1];
    stalls += report.stalls[0] + report.stalls[1];
    told += report.told ? 1 : 0;
  }
  EXPECT_GE(read, 10U << 20);
  EXPECT_GE(stalls, 100U);
  EXPECT_GE(told, 15U);
}

TEST(StreamRun, TheSameSeedIsTheSameRun) {
  EXPECT_EQ(run_stream(make_stream_plan(3)).hash, run_stream(make_stream_plan(3)).hash);
  EXPECT_NE(run_stream(make_stream_plan(3)).hash, run_stream(make_stream_plan(4)).hash);
}

}  // namespace
}  // namespace verbena::sim
