// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "sim/campaign.h"
#include "sim/world.h"

namespace verbena::sim {
namespace {

TEST(Determinism, TheSameSeedIsTheSameRun) {
  for (const std::uint64_t seed : {11U, 12U, 13U}) {
    const RunReport once = run_seed(seed);
    const RunReport again = run_seed(seed);
    EXPECT_EQ(once.failure, "");
    EXPECT_EQ(once.hash, again.hash) << seed;
    EXPECT_EQ(once.virtual_time, again.virtual_time) << seed;
    EXPECT_NE(once.hash, run_seed(seed + 100).hash);
  }
}

TEST(Determinism, TheSameSeedIsTheSameRunInAnotherProcess) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint64_t hash = run_seed(21).hash;
    const bool written = ::write(ends[1], &hash, sizeof hash) == sizeof hash;
    ::_exit(written ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::uint64_t hash = 0;
  ASSERT_EQ(::read(ends[0], &hash, sizeof hash), static_cast<ssize_t>(sizeof hash));
  EXPECT_EQ(run_seed(21).hash, hash);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Determinism, ATraceDoesNotChangeTheRun) {
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  ASSERT_NE(nowhere, nullptr);
  EXPECT_EQ(run_seed(5).hash, run_seed(5, false, nowhere).hash);
  std::fclose(nowhere);
}

TEST(Campaign, RunsEverySeedOnceAndAddsUp) {
  const CampaignReport report = run_campaign({.first = 1, .last = 12, .jobs = 2});
  EXPECT_EQ(report.runs, 12U);
  for (const FailedSeed& seed : report.failed) ADD_FAILURE() << seed.seed << ": " << seed.failure;
  EXPECT_GE(report.counters.operations, 12U * 500);
}

TEST(Campaign, OnOneMachineTakesEveryWayThereIs) {
  const CampaignReport report =
      run_campaign({.first = 1, .last = 12, .jobs = 2, .same_host = true});
  for (const FailedSeed& seed : report.failed) ADD_FAILURE() << seed.seed << ": " << seed.failure;
  EXPECT_GE(report.counters.by_ring, 5000U);
  EXPECT_GE(report.counters.fetched, 500U);
  EXPECT_GE(report.counters.direct, 100U);
  EXPECT_GE(report.counters.reads_fetched, 40U);
  EXPECT_GE(report.counters.piggybacks, 10U);
}

TEST(Plans, HaveEnoughOfEverything) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Plan plan = make_plan(seed);
    const DisturbancePlan& disturbance = plan.disturbance;
    const int kinds = (disturbance.drop_ppm != 0) + (disturbance.duplicate_ppm != 0) +
                      (disturbance.reorder_ppm != 0) + (disturbance.delay_ppm != 0) +
                      (disturbance.corrupt_ppm != 0) + (plan.pauses != 0) + (plan.restarts != 0) +
                      (plan.forgeries != 0) + (plan.silences != 0);
    EXPECT_GE(kinds, 3) << seed;
    EXPECT_GE(plan.operations, 500U) << seed;
  }
}

}  // namespace
}  // namespace verbena::sim
