// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>

#include "sim/plan.h"
#include "sim/world.h"

// Runs whose plans are bent towards one thing, and seeds that found something once.

namespace verbena::sim {
namespace {

RunCounters run_bent(std::uint64_t first, std::uint64_t last,
                     const std::function<void(Plan&)>& bend) {
  RunCounters sum;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Plan plan = make_plan(seed);
    bend(plan);
    const RunReport report = run_plan(plan);
    EXPECT_EQ(report.failure, "") << "seed " << seed;
    sum.add(report.counters);
    if (!report.failure.empty()) break;
  }
  return sum;
}

void calm(Plan& plan) {
  plan.disturbance = {};
  plan.pauses = plan.restarts = plan.forgeries = plan.silences = 0;
}

TEST(Scenario, NothingGoesWrong) {
  const RunCounters sum = run_bent(1, 5, [](Plan& plan) {
    calm(plan);
    plan.misdeed_ppm = 0;
  });
  EXPECT_GE(sum.operations, 2500U);
  EXPECT_EQ(sum.corrupted + sum.dropped + sum.restarts, 0U);
}

TEST(Scenario, MisdeedsEndConnectionsWithTheirStatus) {
  const RunCounters sum = run_bent(1, 8, [](Plan& plan) {
    calm(plan);
    plan.misdeed_ppm = 40'000;
  });
  std::uint64_t misdeeds = 0;
  for (const std::uint64_t count : sum.misdeeds) misdeeds += count;
  EXPECT_GE(misdeeds, 50U);
}

TEST(Scenario, MuchIsLost) {
  const RunCounters sum = run_bent(1, 5, [](Plan& plan) {
    calm(plan);
    plan.gentle = false;
    plan.disturbance.drop_ppm = 100'000;
    plan.disturbance.corrupt_ppm = 20'000;
  });
  EXPECT_GE(sum.retransmitted, 100U);
}

TEST(Scenario, ProcessesVanishAndComeBack) {
  const RunCounters sum = run_bent(1, 5, [](Plan& plan) {
    calm(plan);
    plan.restarts = 4;
  });
  EXPECT_GE(sum.restarts, 5U);
}

TEST(Scenario, ReceivesAreShared) {
  const RunCounters sum = run_bent(1, 6, [](Plan& plan) { plan.shared_queues = 1; });
  EXPECT_GE(sum.shared_receives, 150U);
  EXPECT_GE(sum.shared_limits, 5U);
  EXPECT_GE(sum.shared_resizes, 10U);
  EXPECT_GE(sum.shared_rnr_naks, 10U);
  EXPECT_GE(sum.last_receives, 10U);
}

std::uint64_t misdeeds_of(const RunCounters& sum, Misdeed misdeed) {
  return sum.misdeeds[static_cast<std::size_t>(misdeed)];
}

TEST(Scenario, RequestsNameTheQueuesOfADomain) {
  const RunCounters sum = run_bent(1, 16, [](Plan& plan) {
    plan.numbered_queues = 3;
    plan.misdeed_ppm = 20'000;
  });
  EXPECT_GE(sum.extended, 50U);
  EXPECT_GE(sum.numbered_receives, 150U);
  EXPECT_GE(sum.last_receives, 10U);
  EXPECT_GE(sum.failed_queues, 2U);
  EXPECT_GE(misdeeds_of(sum, Misdeed::kStrangeQueue), 3U);
  EXPECT_GE(misdeeds_of(sum, Misdeed::kForeignQueue), 1U);
}

// What is repeated on the way comes late, when the window that it names may be another already.
TEST(Scenario, WindowsComeAndGo) {
  const RunCounters sum = run_bent(1, 12, [](Plan& plan) {
    calm(plan);
    plan.windows = true;
    plan.misdeed_ppm = 10'000;
    plan.disturbance.duplicate_ppm = 200'000;
    plan.disturbance.delay_ppm = 100'000;
    plan.disturbance.longest_delay = plan.min_ack_timeout / 4;
  });
  EXPECT_GE(sum.windows_bound, 150U);
  EXPECT_GE(sum.windows_invalidated, 15U);
  EXPECT_GE(sum.windows_invalidated_remotely, 5U);
  EXPECT_GE(sum.windowed, 150U);
}

// A part of a READ is asked for again behind the end of its window.
TEST(Scenario, ARepeatedReadIsRefusedWithoutAnEvent) { EXPECT_EQ(run_seed(120006513).failure, ""); }

TEST(Scenario, GroupsReachEachOfTheirMembers) {
  const RunCounters sum = run_bent(1, 6, [](Plan& plan) { plan.datagram_pairs = plan.groups = 2; });
  EXPECT_GE(sum.multicasts, 100U);
  EXPECT_GE(sum.multicast_arrived, 200U);
  EXPECT_GE(sum.multicast_blocked, 10U);
}

TEST(Scenario, UnreliableConnectionsLoseNothingOfThemselves) {
  const RunCounters sum = run_bent(1, 6, [](Plan& plan) {
    calm(plan);
    plan.unreliable_pairs = 2;
  });
  EXPECT_GE(sum.unreliable_arrived, 200U);
  EXPECT_EQ(sum.unreliable_again, 0U);
  EXPECT_EQ(sum.overflowed, 0U);
  EXPECT_EQ(sum.unreliable_lost, 0U);
}

TEST(Scenario, UnreliableMessagesAreLostAsAWhole) {
  const RunCounters sum = run_bent(1, 6, [](Plan& plan) {
    plan.unreliable_pairs = 2;
    plan.disturbance.drop_ppm = plan.disturbance.duplicate_ppm = 50'000;
  });
  EXPECT_GE(sum.unreliable_arrived, 200U);
  EXPECT_GE(sum.unreliable_again, 3U);
  EXPECT_GE(sum.unreliable_lost, 20U);
}

TEST(Scenario, PathsAreCut) {
  run_bent(1, 5, [](Plan& plan) {
    calm(plan);
    plan.silences = 1;
    plan.misdeed_ppm = 20'000;
  });
}

// No request of a patient requester fails, however long its peer stands still.
TEST(Scenario, ProcessesStandStillForAMinute) {
  const RunCounters sum = run_bent(1, 6, [](Plan& plan) {
    calm(plan);
    plan.misdeed_ppm = 0;
    plan.pauses = 6;
    plan.longest_pause = std::chrono::minutes(1);
    plan.patient = true;
  });
  EXPECT_GE(sum.pauses, 10U);
}

/// What the seeds were found with.
RunReport run_found(std::uint64_t seed) {
  Plan plan = make_plan(seed);
  plan.shared_queues = 0;
  plan.windows = false;
  plan.unreliable_pairs = 0;
  plan.numbered_queues = plan.groups = 0;
  return run_plan(plan);
}

// Parts of long READs changed in retries, and were never answered.
TEST(Found, RetriedPartsOfReads) { EXPECT_EQ(run_found(6).failure, ""); }
// A READ that was refused when its turn to be answered came had been counted as completed.
TEST(Found, MessagesCompletedWhenAReadIsRefused) { EXPECT_EQ(run_found(11).failure, ""); }
// A full window consumed retries of requests that were never sent.
TEST(Found, RetriesBehindAFullWindow) { EXPECT_EQ(run_found(37).failure, ""); }
// The fault that flips a bit flipped the one in which a forged packet's ICRC was wrong.
TEST(Found, ForgedPacketsMadeRightByAFault) { EXPECT_EQ(run_seed(9202365).failure, ""); }
TEST(Found, ADatagramAfterTheLastLook) { EXPECT_EQ(run_seed(40002907).failure, ""); }
TEST(Found, ThatRequestsWithoutPacketsTakeNoPsns) {
  EXPECT_EQ(run_seed(1039004137, true).failure, "");
}

}  // namespace
}  // namespace verbena::sim
