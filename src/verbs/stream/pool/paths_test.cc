// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/pool/paths.h"

#include <gtest/gtest.h>

#include <set>

namespace verbena::verbs::streams {
namespace {

using namespace std::chrono_literals;

constexpr backoff_policy kPolicy{.initial = 100ms, .factor = 2, .largest = 1000ms, .jitter = 0};
const Paths::Time kStart{1h};

/// The path of the attempt that there must be.
Paths::Attempt attempt(Paths& paths, Paths::Time now) {
  const auto next = paths.next(now);
  EXPECT_TRUE(next.attempt);
  return next.attempt.value_or(Paths::Attempt{.path = 99});
}

TEST(Paths, ThePreferredOneIsTheFirst) {
  Paths paths(3, path_order::preferred, kPolicy);
  for (int i = 0; i < 3; ++i) {
    const auto one = attempt(paths, kStart);
    EXPECT_EQ(one.path, 0U);
    paths.handle_connected(one);
  }
}

TEST(Paths, ByTurnsEachIsUsed) {
  Paths paths(3, path_order::by_turns, kPolicy);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(attempt(paths, kStart).path, i % 3);
}

TEST(Paths, AnotherStandsInUntilTheFirstIsTriedAgain) {
  Paths paths(2, path_order::preferred, kPolicy);
  paths.handle_failed(attempt(paths, kStart), kStart, 0);
  EXPECT_EQ(paths.failures(0), 1U);
  EXPECT_EQ(paths.avoided_until(0), kStart + 100ms);
  EXPECT_EQ(attempt(paths, kStart).path, 1U);
  EXPECT_EQ(attempt(paths, kStart + 99ms).path, 1U);
  const auto again = attempt(paths, kStart + 100ms);
  EXPECT_EQ(again.path, 0U);
  paths.handle_connected(again);
  EXPECT_EQ(paths.failures(0), 0U);
  EXPECT_EQ(attempt(paths, kStart + 100ms).path, 0U);
}

TEST(Paths, ByTurnsOneThatFailedIsPassedOver) {
  Paths paths(3, path_order::by_turns, kPolicy);
  EXPECT_EQ(attempt(paths, kStart).path, 0U);
  paths.handle_failed(attempt(paths, kStart), kStart, 0);
  std::multiset<std::size_t> used;
  for (int i = 0; i < 6; ++i) used.insert(attempt(paths, kStart).path);
  EXPECT_EQ(used, (std::multiset<std::size_t>{0, 0, 0, 2, 2, 2}));
}

TEST(Paths, WithNoneLeftItSaysWhen) {
  Paths paths(2, path_order::preferred, kPolicy);
  paths.handle_failed(attempt(paths, kStart), kStart, 0);
  paths.handle_failed(attempt(paths, kStart + 10ms), kStart + 10ms, 0);
  const auto next = paths.next(kStart + 20ms);
  EXPECT_FALSE(next.attempt);
  EXPECT_FALSE(next.tried_by_others);
  EXPECT_EQ(next.due, kStart + 100ms);
}

TEST(Paths, EachFailureInARowIsWaitedForLonger) {
  Paths paths(1, path_order::preferred, kPolicy);
  auto now = kStart;
  for (const auto wait : {100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms}) {
    paths.handle_failed(attempt(paths, now), now, 0);
    EXPECT_EQ(paths.next(now).due, now + wait);
    now += wait;
  }
  paths.handle_connected(attempt(paths, now));
  paths.handle_failed(attempt(paths, now), now, 0);
  EXPECT_EQ(paths.next(now).due, now + 100ms);
}

TEST(Paths, OfManyAttemptsAtOnceTheFirstFailureCounts) {
  Paths paths(1, path_order::preferred, kPolicy);
  const auto one = attempt(paths, kStart);
  const auto two = attempt(paths, kStart);
  const auto three = attempt(paths, kStart);
  paths.handle_failed(one, kStart, 0);
  paths.handle_failed(two, kStart + 50ms, 0);
  EXPECT_EQ(paths.failures(0), 1U);
  EXPECT_EQ(paths.avoided_until(0), kStart + 100ms);
  // And one that comes through says that it is there.
  paths.handle_connected(three);
  EXPECT_EQ(paths.failures(0), 0U);
  EXPECT_EQ(attempt(paths, kStart).path, 0U);
}

TEST(Paths, OneThatFailedIsTriedByOneAtATime) {
  Paths paths(1, path_order::preferred, kPolicy);
  paths.handle_failed(attempt(paths, kStart), kStart, 0);
  const auto now = kStart + 1s;
  const auto trial = attempt(paths, now);
  auto next = paths.next(now);
  EXPECT_FALSE(next.attempt);
  EXPECT_TRUE(next.tried_by_others);
  EXPECT_FALSE(next.due);
  // It came to nothing: somebody else may try.
  paths.handle_abandoned(trial);
  EXPECT_EQ(paths.failures(0), 1U);
  const auto second = attempt(paths, now);
  paths.handle_failed(second, now, 0);
  EXPECT_EQ(paths.failures(0), 2U);
  next = paths.next(now);
  EXPECT_FALSE(next.tried_by_others);
  EXPECT_EQ(next.due, now + 200ms);
}

TEST(Paths, WhatIsOldDoesNotEndATrial) {
  Paths paths(1, path_order::preferred, kPolicy);
  const auto old = attempt(paths, kStart);
  paths.handle_failed(attempt(paths, kStart), kStart, 0);
  const auto trial = attempt(paths, kStart + 1s);
  paths.handle_abandoned(old);
  paths.handle_failed(old, kStart + 1s, 0);
  EXPECT_TRUE(paths.next(kStart + 1s).tried_by_others);
  paths.handle_connected(trial);
  EXPECT_EQ(paths.failures(0), 0U);
}

}  // namespace
}  // namespace verbena::verbs::streams
