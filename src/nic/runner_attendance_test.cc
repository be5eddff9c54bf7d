// SPDX-License-Identifier: Apache-2.0
// What the runner does while application threads poll or wait.
#include "nic/test_runner.h"

namespace verbena::nic {
namespace {

using namespace std::chrono_literals;
using testing::comes;
using testing::FakeNic;
using testing::now;
using RunnerAttendance = testing::RunnerTest;

TEST_F(RunnerAttendance, StandsBackWhileSomebodyPolls) {
  FakeNic nic;
  nic.is_polled.store(true);
  ASSERT_TRUE(runner_.adopt(nic));
  // It looks at every tick, and touches nothing.
  ASSERT_TRUE(comes([&] { return nic.looks.load() > 3; }));
  nic.arrive();
  const int looks = nic.looks.load();
  ASSERT_TRUE(comes([&] { return nic.looks.load() > looks + 10; }));
  EXPECT_EQ(nic.calls.load(), 0);
  nic.is_polled.store(false);
  ASSERT_TRUE(comes([&] { return nic.calls.load() > 0; }));
  EXPECT_TRUE(falls_asleep());
  runner_.release(nic);
}

TEST_F(RunnerAttendance, LooksLessAndLessOftenWhileSomebodyPolls) {
  FakeNic nic;
  nic.is_polled.store(true);
  ASSERT_TRUE(runner_.adopt(nic));
  ASSERT_TRUE(comes([&] { return nic.looks.load() >= 8; }));
  Duration pace = Runner::kTick;
  for (std::size_t look = 1; look < nic.looked_at.size(); ++look) {
    EXPECT_GE(nic.looked_at[look] - nic.looked_at[look - 1], pace) << look;
    pace = std::min(2 * pace, Runner::kLongestTick);
  }
  runner_.release(nic);
}

class RunnerPace : public ::testing::Test {
 protected:
  RunnerPace() {
    nic_.is_polled.store(true);
    EXPECT_TRUE(runner_.adopt(nic_));
  }
  ~RunnerPace() override { runner_.release(nic_); }

  /// Whether it comes when so much time goes by, and does not only look.
  [[nodiscard]] bool comes_after(Duration wait) {
    const int calls = nic_.calls.load();
    const int looks = nic_.looks.load();
    clock_.store(clock_.load() + wait);
    EXPECT_TRUE(comes([&] { return nic_.calls.load() > calls || nic_.looks.load() > looks + 10; }));
    return nic_.calls.load() > calls;
  }
  /// Somebody polls for long and goes, and then something arrives.
  void polls_and_goes() {
    nic_.is_polled.store(true);
    runner_.wake();
    EXPECT_TRUE(comes([&] { return !comes_after({}); }));
    for (Duration pace = Runner::kTick; pace <= 2 * Runner::kLongestTick; pace *= 2)
      EXPECT_FALSE(comes_after(pace));
    nic_.arrive();
    nic_.is_polled.store(false);
  }

  std::atomic<Time> clock_{Time(1h)};
  ForkLedger ledger_;
  Runner runner_{[this] { return clock_.load(); }, ledger_};
  FakeNic nic_;
};

TEST_F(RunnerPace, ItLooksMoreOftenForAWhileBehindAMiss) {
  polls_and_goes();
  EXPECT_FALSE(comes_after(Runner::kShorterTick));
  EXPECT_TRUE(comes_after(Runner::kLongestTick));
  polls_and_goes();
  EXPECT_TRUE(comes_after(Runner::kShorterTick)) << "that had been a miss";
  clock_.store(clock_.load() + Runner::kRemembered);
  polls_and_goes();
  EXPECT_FALSE(comes_after(Runner::kShorterTick));
}

TEST_F(RunnerPace, WhoPolledAMomentAgoWasNotMissed) {
  nic_.was_polled.store(true);
  polls_and_goes();
  EXPECT_TRUE(comes_after(Runner::kLongestTick));
  polls_and_goes();
  EXPECT_FALSE(comes_after(Runner::kShorterTick));
}

TEST_F(RunnerPace, WhoCalledItWasNotMissed) {
  polls_and_goes();
  runner_.wake();
  EXPECT_TRUE(comes_after({}));
  polls_and_goes();
  EXPECT_FALSE(comes_after(Runner::kShorterTick));
}

TEST_F(RunnerAttendance, StandsBackWhileSomebodySleepsInItsPlace) {
  FakeNic nic;
  nic.is_slept_on.store(true);
  ASSERT_TRUE(runner_.adopt(nic));
  ASSERT_TRUE(comes([&] { return nic.calls.load() > 0; }));  // adopt() wakes it
  EXPECT_TRUE(falls_asleep()) << "who only waits costs nothing";
  int calls = nic.calls.load();
  nic.keeps_sleeping_anew.store(true);
  nic.arrive();  // for the other one; here nobody takes it, so the runner is called, too
  const int looks = nic.looks.load();
  ASSERT_TRUE(comes([&] { return nic.looks.load() > looks + 10; }));
  EXPECT_EQ(nic.calls.load(), calls);
  nic.keeps_sleeping_anew.store(false);
  ASSERT_TRUE(comes([&] { return nic.calls.load() > calls; })) << "it does not wake up";
  // Time-outs and what others ask for are the runner's all the same.
  nic.timeout.store(now());
  runner_.wake();
  ASSERT_TRUE(comes([&] { return nic.timeout.load() == Time::max(); }));
  calls = nic.calls.load();
  nic.arrive();
  nic.is_slept_on.store(false);
  ASSERT_TRUE(comes([&] { return nic.calls.load() > calls; })) << "it did not come back";
  EXPECT_TRUE(falls_asleep());
  runner_.release(nic);
}

TEST(RunnerInTheWay, ItLeavesAStreamToAThreadThatItTurnedAway) {
  std::atomic<Time> clock{Time(1h)};
  ForkLedger ledger;
  Runner runner([&] { return clock.load(); }, ledger);
  FakeNic nic;
  std::atomic<bool> somebody_polls{false};
  nic.in_progress = [&] {
    nic.arrive();  // so there is always something to do
    if (somebody_polls.load()) nic.turns_away.store(true);
  };
  ASSERT_TRUE(runner.adopt(nic));
  ASSERT_TRUE(comes([&] { return nic.calls.load() > 1000; }));
  somebody_polls.store(true);
  const auto only_looks = [&] {
    const int calls = nic.calls.load();
    const int looks = nic.looks.load();
    return comes([&] { return nic.looks.load() > looks + 10; }) && nic.calls.load() == calls;
  };
  EXPECT_TRUE(comes(only_looks));
  // So it is whenever it comes back and somebody is there, be it ever so often.
  for (int times = 0; times < 2 * Runner::kMisses; ++times) {
    const int calls = nic.calls.load();
    clock.store(clock.load() + Runner::kTick);
    ASSERT_TRUE(comes([&] { return nic.calls.load() > calls; }));
    ASSERT_TRUE(comes(only_looks)) << times;
  }
  somebody_polls.store(false);
  const int calls = nic.calls.load();
  clock.store(clock.load() + Runner::kTick);
  EXPECT_TRUE(comes([&] { return nic.calls.load() > calls + 1000; })) << "nobody polls any more";
  runner.release(nic);
}

TEST(RunnerInTheWay, ItTakesATurnAtATimeFromAThreadThatWasSeenOnItsProcessor) {
  std::atomic<Time> clock{Time(1h)};
  ForkLedger ledger;
  Runner runner([&] { return clock.load(); }, ledger);
  FakeNic nic;
  nic.in_progress = [&] { nic.arrive(); };  // so there is always something to do
  nic.is_seen_here.store(true);
  ASSERT_TRUE(runner.adopt(nic));
  ASSERT_TRUE(comes([&] { return nic.calls.load() == 1; }));
  // It never stays because of that, be it ever so often.
  for (int times = 1; times < 2 * Runner::kMisses; ++times) {
    const int looks = nic.looks.load();
    ASSERT_TRUE(comes([&] { return nic.looks.load() > looks + 10; }));
    ASSERT_EQ(nic.calls.load(), times) << "it does not wait";
    clock.store(clock.load() + Runner::kTick);
    ASSERT_TRUE(comes([&] { return nic.calls.load() > times; }));
  }
  nic.is_seen_here.store(false);
  const int calls = nic.calls.load();
  clock.store(clock.load() + Runner::kTick);
  EXPECT_TRUE(comes([&] { return nic.calls.load() > calls + 1000; })) << "nobody else wants it";
  runner.release(nic);
}

TEST(RunnerMisses, ItStaysArmedAfterThem) {
  std::atomic<Time> clock{Time(1h)};
  ForkLedger ledger;
  Runner runner([&] { return clock.load(); }, ledger);
  FakeNic nic;
  ASSERT_TRUE(runner.adopt(nic));
  // Somebody polls when the runner looks whether to leave, and nobody when it comes back.
  for (int miss = 0; miss < Runner::kMisses; ++miss) {
    nic.is_polled.store(true);
    const int looks = nic.looks.load();
    // An arrival alone might be taken by a call that is still under way, and nothing follows it.
    ASSERT_TRUE(comes([&] {
      runner.wake();
      return nic.looks.load() > looks;
    })) << miss;
    nic.is_polled.store(false);
    const int calls = nic.calls.load();
    nic.arrive();
    ASSERT_TRUE(comes([&] {
      runner.wake();
      return nic.calls.load() > calls;
    }));
  }
  // Now it stays, without asking whether somebody polls.
  const int looks = nic.looks.load();
  nic.is_polled.store(true);
  for (int i = 0; i < 10; ++i) {
    const int calls = nic.calls.load();
    nic.arrive();
    ASSERT_TRUE(comes([&] { return nic.calls.load() > calls; }));
  }
  EXPECT_EQ(nic.looks.load(), looks);
  clock.store(clock.load() + Runner::kArmed);
  EXPECT_TRUE(comes([&] {
    runner.wake();
    return nic.looks.load() > looks;
  }));
  runner.release(nic);
}

}  // namespace
}  // namespace verbena::nic
