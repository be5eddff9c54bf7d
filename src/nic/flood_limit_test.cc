// SPDX-License-Identifier: Apache-2.0
#include "nic/flood_limit.h"

#include <gtest/gtest.h>

namespace verbena::nic {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{1h};
constexpr Progress kUnwanted{.worked = true, .datagrams = 1000, .unwanted = 1000};

TEST(FloodLimit, AnEighthOfTheTimeIsWorked) {
  FloodLimit limit;
  Time now = kStart;
  Duration worked{};
  for (int i = 0; i < 1000; ++i) {
    const Time began = now;
    now += 300us;
    worked += 300us;
    now = limit.note(began, now, kUnwanted).value_or(now);
  }
  EXPECT_NEAR(static_cast<double>(worked.count()) / static_cast<double>((now - kStart).count()),
              1.0 / FloodLimit::kShare, 0.02);
}

TEST(FloodLimit, AFewUnwantedDatagramsAreNoFlood) {
  FloodLimit limit;
  Time now = kStart;
  for (int i = 0; i < 100; ++i, now += 2 * FloodLimit::kWindow) {
    const Progress few{.worked = true, .datagrams = 255, .unwanted = 255};
    EXPECT_FALSE(limit.note(now, now + 1ms, few));
  }
}

TEST(FloodLimit, WhoGetsWhatItWantsGoesOn) {
  FloodLimit limit;
  const Progress mixed{.worked = true, .datagrams = 1000, .unwanted = 800};
  EXPECT_FALSE(limit.note(kStart, kStart + 1ms, mixed));
}

TEST(FloodLimit, TurnsWithoutAnythingUnwantedCount) {
  FloodLimit limit;
  Time now = kStart;
  for (int i = 0; i < 1000; ++i, now += 4us) {
    EXPECT_FALSE(limit.note(now, now + 2us, {.worked = true, .datagrams = 1, .unwanted = 1}));
    limit.note_wanted({.worked = true, .datagrams = 1});
  }
}

TEST(FloodLimit, FewAtATimeAddUp) {
  FloodLimit limit;
  Time now = kStart;
  const Progress some{.worked = true, .datagrams = 50, .unwanted = 50};
  for (int i = 0; i < 5; ++i, now += 20us) EXPECT_FALSE(limit.note(now, now + 20us, some));
  EXPECT_EQ(limit.note(now, now + 20us, some), kStart + FloodLimit::kShare * 120us);
}

TEST(FloodLimit, NoRestIsLong) {
  FloodLimit limit;
  EXPECT_EQ(limit.note(kStart, kStart + 1s, kUnwanted), kStart + 1s + FloodLimit::kLongestRest);
}

}  // namespace
}  // namespace verbena::nic
