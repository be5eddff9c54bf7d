// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/pool/lease_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>

#include "verbs/stream/pool/test_environment.h"
#include "verbs/test_pair.h"

namespace verbena::verbs::streams {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using verbs::testing::FakeEnvironment;
using verbs::testing::must;

struct Counts {
  std::atomic<int> opened{0};
  std::atomic<int> there{0};
};

/// What is pooled here.
class Thing {
 public:
  explicit Thing(Counts& of) : of_(&of), number(++of.opened) { ++of.there; }
  Thing(Thing&& from) noexcept : of_(std::exchange(from.of_, nullptr)), number(from.number) {}
  Thing& operator=(Thing&& from) noexcept {
    std::swap(of_, from.of_);
    std::swap(number, from.number);
    return *this;
  }
  ~Thing() {
    if (of_ != nullptr) --of_->there;
  }

 private:
  Counts* of_;

 public:
  int number;
};

using Pool = LeasePool<Thing>;

struct Pooled {
  explicit Pooled(const stream_pool_options& options, std::size_t peers = 1)
      : pool(peers, options, environment,
             {.open = [this](std::size_t peer, auto until,
                             const auto& stop) { return open(peer, until, stop); },
              .probe = [this](Thing& one) { return answer(++probes, one, dead); },
              .check = [this](Thing& one) { return answer(++checks, one, broken); }}) {}
  static Result<> answer(int /*count*/, const Thing& one, int wrong) {
    if (one.number != wrong) return {};
    return fail(std::errc::connection_reset, "thing");
  }
  int number_of(Result<Pool::Kept> got, std::size_t peer = 0) {
    auto kept = must(std::move(got));
    const int number = kept.one.number;
    pool.give_back(peer, std::move(kept), true);
    return number;
  }
  Result<Pool::Kept> acquire(std::size_t peer = 0, stream_timeout at_most = {}) {
    return pool.acquire(peer, at_most, {});
  }
  /// So many wait for a place.
  void wait_for_waiting(std::size_t count) const {
    while (pool.counters().waiting != count) std::this_thread::yield();
  }

  Counts counts;
  FakeEnvironment environment;
  std::atomic<int> probes{0};
  std::atomic<int> checks{0};
  std::atomic<int> dead{0};    ///< the number of one that does not answer
  std::atomic<int> broken{0};  ///< and of one that says itself that it is not good
  std::function<Result<Thing>(std::size_t, Pool::Deadline, const std::stop_token&)> open =
      [this](std::size_t, Pool::Deadline, const std::stop_token&) { return Thing(counts); };
  Pool pool;
};

stream_pool_options limited(std::size_t to) { return {.max_open = to, .max_open_per_peer = to}; }

TEST(LeasePool, WaitsAsLongAsCanBeSaid) {
  Pooled one({});
  std::optional<Pool::Deadline> until;
  one.open = [&](std::size_t, Pool::Deadline at, const std::stop_token&) {
    until = at;
    return Thing(one.counts);
  };
  must(one.acquire(0, std::chrono::milliseconds::max()));
  ASSERT_TRUE(until && *until);
  EXPECT_GT(**until, one.environment.now() + 1h);
}

TEST(LeasePool, WhatCameBackIsUsedAgain) {
  Pooled one(limited(4));
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  auto first = must(one.acquire());
  auto second = must(one.acquire());
  EXPECT_EQ(first.one.number, 1);
  EXPECT_EQ(second.one.number, 2);
  EXPECT_EQ(one.pool.counters().leased, 2U);
  one.pool.give_back(0, std::move(first), true);
  one.pool.give_back(0, std::move(second), true);
  const auto now = one.pool.counters();
  EXPECT_EQ(now.opened, 2U);
  EXPECT_EQ(now.reused, 2U);
  EXPECT_EQ(now.leased, 0U);
  EXPECT_EQ(now.idle, 2U);
  EXPECT_EQ(now.failed + now.discarded + now.expired + now.waiting, 0U);
}

TEST(LeasePool, WhatIsNotGoodIsNotUsedAgain) {
  Pooled one(limited(4));
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  one.broken = 1;  // while it lies there
  EXPECT_EQ(one.number_of(one.acquire()), 2);
  EXPECT_EQ(one.counts.there, 1);
  one.broken = 2;  // when it comes back
  auto kept = must(one.acquire());
  EXPECT_EQ(kept.one.number, 3);
  one.broken = 3;
  one.pool.give_back(0, std::move(kept), true);
  one.broken = 0;
  auto given_up = must(one.acquire());
  EXPECT_EQ(given_up.one.number, 4);
  one.pool.give_back(0, std::move(given_up), false);
  EXPECT_EQ(one.counts.there, 0);
  EXPECT_EQ(one.pool.counters().discarded, 4U);
  EXPECT_EQ(one.pool.counters().leased, 0U);
}

TEST(LeasePool, AfterAWhileItIsAskedForASignOfLife) {
  Pooled one({.probe_after = 1000ms});
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  one.environment.pass(999ms);
  EXPECT_EQ(one.number_of(one.pool.try_acquire(0)), 1);
  EXPECT_EQ(one.probes, 0);
  one.environment.pass(1000ms);
  EXPECT_TRUE(one.pool.try_acquire(0).error().would_block());
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  EXPECT_EQ(one.probes, 1);
  one.environment.pass(1000ms);
  one.dead = 1;
  EXPECT_EQ(one.number_of(one.acquire()), 2);
  EXPECT_EQ(one.probes, 2);
  Pooled never({.probe_after = 0ms});
  EXPECT_EQ(never.number_of(never.acquire()), 1);
  never.environment.pass(50s);
  EXPECT_EQ(never.number_of(never.pool.try_acquire(0)), 1);
  EXPECT_EQ(never.number_of(never.acquire()), 1);
  EXPECT_EQ(never.probes, 0);
}

TEST(LeasePool, TimesMayBeAsLongAsCanBeSaid) {
  constexpr auto kEver = std::chrono::milliseconds::max();
  Pooled one({.idle_timeout = kEver, .max_age = kEver, .probe_after = kEver});
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  one.environment.pass(1000h);
  EXPECT_EQ(one.number_of(one.pool.try_acquire(0)), 1);
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  EXPECT_EQ(one.probes, 0);
  EXPECT_EQ(one.pool.counters().expired, 0U);
}

TEST(LeasePool, WhatIsIdleOrOldForTooLongGoes) {
  Pooled one({.idle_timeout = 10s, .max_age = 25s, .probe_after = 0ms});
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  one.environment.pass(9s);
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  one.environment.pass(9s);
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  one.environment.pass(7s);
  EXPECT_EQ(one.number_of(one.acquire()), 2);  // that one was of age
  EXPECT_EQ(one.counts.there, 1);
  one.environment.pass(10s);
  one.pool.trim();
  EXPECT_EQ(one.counts.there, 0);
  EXPECT_EQ(one.pool.counters().expired, 2U);
  EXPECT_EQ(one.pool.counters().discarded, 0U);
}

TEST(LeasePool, PlacesGoInOrder) {
  Pooled one(limited(1));
  auto held = must(one.acquire());
  std::vector<int> order;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        auto mine = must(one.acquire());
        order.push_back(i);  // one at a time has it
        one.pool.give_back(0, std::move(mine), true);
      });
      one.wait_for_waiting(static_cast<std::size_t>(i) + 1);
    }
    one.pool.give_back(0, std::move(held), true);
  }
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(one.counts.opened, 1);
}

TEST(LeasePool, ATimeOutAtTheLimitSaysSo) {
  Pooled one(limited(1));
  auto held = must(one.acquire());
  const auto late = one.acquire(0, 50ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), std::errc::timed_out);
  EXPECT_THAT(late.error().message(), HasSubstr("1 streams are leased"));
  EXPECT_EQ(one.environment.passed(), 50ms);
  EXPECT_TRUE(one.pool.try_acquire(0).error().would_block());
  EXPECT_EQ(one.pool.counters().failed, 1U);
  EXPECT_EQ(one.pool.counters().waiting, 0U);
  one.pool.give_back(0, std::move(held), true);
  EXPECT_EQ(one.number_of(one.acquire(0, 50ms)), 1);
}

TEST(LeasePool, WhoWaitsIsStopped) {
  Pooled one(limited(1));
  auto held = must(one.acquire());
  std::optional<Error> error;
  {
    std::stop_source stop;
    const std::jthread waiting(
        [&, token = stop.get_token()] { error = one.pool.acquire(0, {}, token).error(); });
    one.wait_for_waiting(1);
    stop.request_stop();
  }
  EXPECT_EQ(*error, std::errc::operation_canceled);
  EXPECT_EQ(one.pool.counters().waiting, 0U);
  one.pool.give_back(0, std::move(held), true);
  EXPECT_EQ(one.number_of(one.acquire()), 1);
}

TEST(LeasePool, WhatDoesNotOpenLeavesItsPlace) {
  Pooled one(limited(1));
  const auto opens = std::exchange(one.open, [](auto, auto, const auto&) -> Result<Thing> {
    return fail(std::errc::connection_refused, "thing", "nobody is there");
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one.acquire().error(), std::errc::connection_refused);
  EXPECT_EQ(one.pool.counters().failed, 3U);
  EXPECT_EQ(one.pool.counters().leased, 0U);
  one.open = opens;
  EXPECT_EQ(one.number_of(one.acquire()), 1);
}

TEST(LeasePool, ClosingEndsWhoWaitsAndWhoConnects) {
  Pooled one(limited(2));
  auto held = must(one.acquire());
  std::latch connects(1);
  one.open = [&](auto, auto, const std::stop_token& stop) -> Result<Thing> {
    std::latch stopped(1);
    const std::stop_callback told(stop, [&] { stopped.count_down(); });
    connects.count_down();
    stopped.wait();
    return fail(std::errc::operation_canceled, "thing");
  };
  std::optional<Error> of_connecting;
  std::optional<Error> of_waiting;
  {
    const std::jthread connecting([&] { of_connecting = one.acquire().error(); });
    connects.wait();
    const std::jthread waiting([&] { of_waiting = one.acquire().error(); });
    one.wait_for_waiting(1);
    one.pool.close();
  }
  EXPECT_EQ(*of_connecting, std::errc::bad_file_descriptor) << of_connecting->message();
  EXPECT_EQ(*of_waiting, std::errc::bad_file_descriptor) << of_waiting->message();
  EXPECT_EQ(one.acquire().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.pool.try_acquire(0).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.counts.there, 1);
  one.pool.give_back(0, std::move(held), true);
  EXPECT_EQ(one.counts.there, 0);
  one.pool.close();
}

TEST(LeasePool, WhatIsIdleGoesWhenItIsClosed) {
  Pooled one(limited(2));
  EXPECT_EQ(one.number_of(one.acquire()), 1);
  EXPECT_EQ(one.counts.there, 1);
  one.pool.close();
  EXPECT_EQ(one.counts.there, 0);
}

TEST(LeasePool, WhatIsIdleForAnotherPeerMakesRoom) {
  Pooled two(limited(1), 2);
  EXPECT_EQ(two.number_of(two.acquire(0), 0), 1);
  EXPECT_EQ(two.number_of(two.acquire(1), 1), 2);
  EXPECT_EQ(two.counts.there, 1);
  EXPECT_EQ(two.pool.counters().expired, 1U);
  EXPECT_EQ(two.acquire(2).error(), std::errc::invalid_argument);
  EXPECT_EQ(two.pool.try_acquire(2).error(), std::errc::invalid_argument);
}

TEST(LeasePool, ManyThreadsAtOnce) {
  constexpr std::size_t kMost = 3;
  constexpr int kThreads = 8;
  constexpr int kTimes = 200;
  Pooled two({.max_open = kMost, .max_open_per_peer = 2}, 2);
  std::array<std::atomic<int>, kThreads * kTimes + 1> users{};
  std::atomic<bool> shared = false;
  std::atomic<int> got = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kTimes; ++i) {
          const auto peer = static_cast<std::size_t>(thread + i) % 2;
          auto kept = i % 7 == 0 ? two.pool.try_acquire(peer) : two.acquire(peer);
          if (!kept) continue;
          ++got;
          std::atomic<int>& of_this = users.at(static_cast<std::size_t>(kept->one.number));
          if (++of_this != 1) shared = true;
          --of_this;
          two.pool.give_back(peer, std::move(*kept), i % 5 != 0);
        }
      });
  }
  EXPECT_FALSE(shared);
  const auto now = two.pool.counters();
  EXPECT_EQ(now.leased + now.waiting + now.failed, 0U);
  EXPECT_LE(now.idle, kMost);
  EXPECT_EQ(now.opened + now.reused, static_cast<std::uint64_t>(got));
  EXPECT_EQ(static_cast<std::size_t>(two.counts.there), now.idle);
  EXPECT_EQ(now.opened, now.idle + now.discarded + now.expired);
}

}  // namespace
}  // namespace verbena::verbs::streams
