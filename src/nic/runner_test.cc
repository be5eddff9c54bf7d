// SPDX-License-Identifier: Apache-2.0
#include "nic/runner.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "nic/fork_ledger.h"

namespace verbena::nic {
namespace {

using namespace std::chrono_literals;

Time now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return Time(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

/// Waits for what must come; a test that fails here has waited for long.
template <typename Condition>
[[nodiscard]] bool comes(Condition condition) {
  const Time end = now() + 30s;
  while (!condition()) {
    if (now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// A NIC as far as the runner sees one.
class FakeNic final : public Driven {
 public:
  explicit FakeNic(bool with_descriptor = true)
      : fd_(with_descriptor ? sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1) {}

  Progress progress(Time at, std::uint32_t) override {
    calls.fetch_add(1);
    if (in_progress) in_progress();
    if (at >= timeout.load()) {
      fired_at.store(at);
      timeout.store(Time::max());
    }
    std::uint64_t count = 0;
    return {.worked = fd_ && sys::read(fd_.get(), &count, sizeof count) > 0};
  }
  [[nodiscard]] std::optional<Time> next_timeout() const override {
    const Time time = timeout.load();
    return time == Time::max() ? std::nullopt : std::optional(time);
  }
  [[nodiscard]] std::span<const int> descriptors() const override {
    return std::span(&number_, fd_ ? 1U : 0U);
  }
  [[nodiscard]] bool attended(Time at) const override {
    const auto look = static_cast<std::size_t>(looks.load());
    if (look < looked_at.size()) looked_at[look] = at;
    looks.fetch_add(1);
    return is_polled.load() || is_slept_on.load();
  }
  [[nodiscard]] bool polled_lately(Time) const override { return is_polled.load(); }
  [[nodiscard]] bool slept_on() const override { return is_slept_on.load(); }
  [[nodiscard]] std::uint32_t sleeps() const override {
    return keeps_sleeping_anew.load() ? sleep_count.fetch_add(1) : sleep_count.load();
  }
  [[nodiscard]] MaySleep may_sleep(Time) override { return may.load(); }
  void raise_fatal() override { failures.fetch_add(1); }
  void arrive() {
    const std::uint64_t one = 1;
    ASSERT_EQ(sys::write(fd_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

  std::atomic<int> calls{0};
  mutable std::atomic<int> looks{0};
  mutable std::array<Time, 8> looked_at{};  ///< the first ones; to be read after `looks`
  std::atomic<Time> timeout{Time::max()};
  std::atomic<Time> fired_at{Time::min()};
  std::atomic<bool> is_polled{false};
  std::atomic<bool> is_slept_on{false};
  std::atomic<bool> keeps_sleeping_anew{false};
  mutable std::atomic<std::uint32_t> sleep_count{0};
  std::atomic<MaySleep> may{MaySleep::kYes};
  std::atomic<int> failures{0};
  std::function<void()> in_progress;

 private:
  sys::OwnedFd fd_;
  int number_ = fd_.get();
};

class RunnerTest : public ::testing::Test {
 protected:
  ForkLedger ledger_;
  Runner runner_{&now, ledger_};

  /// Whether the thread sleeps: it has been through its work and does not wake up by itself.
  [[nodiscard]] bool falls_asleep() {
    return comes([&] {
      const std::uint64_t before = runner_.wakeups();
      const timespec while_asleep{.tv_sec = 0, .tv_nsec = 5'000'000};
      sys::ppoll(nullptr, 0, &while_asleep);
      return runner_.wakeups() == before;
    });
  }
};

TEST_F(RunnerTest, DrivesOnAdoptionOnArrivalAndOnWake) {
  FakeNic nic;
  ASSERT_TRUE(runner_.adopt(nic));
  ASSERT_TRUE(comes([&] { return nic.calls.load() > 0; }));
  int before = nic.calls.load();
  nic.arrive();
  ASSERT_TRUE(comes([&] { return nic.calls.load() >= before + 1; }));
  ASSERT_TRUE(falls_asleep());
  before = nic.calls.load();
  runner_.wake();
  ASSERT_TRUE(comes([&] { return nic.calls.load() > before; }));
  runner_.release(nic);
}

TEST_F(RunnerTest, SleepsWhenIdle) {
  FakeNic nic;
  FakeNic without(false);
  ASSERT_TRUE(runner_.adopt(nic));
  ASSERT_TRUE(runner_.adopt(without));
  EXPECT_TRUE(falls_asleep());
  runner_.release(nic);
  runner_.release(without);
  EXPECT_TRUE(falls_asleep());
}

TEST_F(RunnerTest, ComesAgainToWhoIsOccupied) {
  FakeNic nic;
  nic.may = MaySleep::kBriefly;
  ASSERT_TRUE(runner_.adopt(nic));
  ASSERT_TRUE(comes([&] { return nic.calls.load() >= 5; }));
  nic.may = MaySleep::kYes;
  EXPECT_TRUE(falls_asleep());
  runner_.release(nic);
}

TEST_F(RunnerTest, KeepsTimers) {
  FakeNic nic(false);
  ASSERT_TRUE(runner_.adopt(nic));
  ASSERT_TRUE(falls_asleep());
  const Time due = now() + 3ms;
  nic.timeout.store(due);
  runner_.wake();  // the timer moved forward
  ASSERT_TRUE(comes([&] { return nic.timeout.load() == Time::max(); }));
  EXPECT_GE(nic.fired_at.load(), due);
  runner_.release(nic);
}

TEST_F(RunnerTest, StandsBackWhileSomebodyPolls) {
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

TEST_F(RunnerTest, LooksLessAndLessOftenWhileSomebodyPolls) {
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

TEST_F(RunnerTest, WatchesAgainAfterAStream) {
  FakeNic nic;
  ASSERT_TRUE(runner_.adopt(nic));
  for (int stream = 0; stream < 5; ++stream) {
    const int calls = nic.calls.load();
    ASSERT_TRUE(comes([&] {
      nic.arrive();
      return nic.calls.load() > calls + 10'000;
    }));
    EXPECT_TRUE(falls_asleep());
    const int asleep = nic.calls.load();
    nic.arrive();
    EXPECT_TRUE(comes([&] { return nic.calls.load() > asleep; }));
  }
  runner_.release(nic);
}

TEST_F(RunnerTest, StandsBackWhileSomebodySleepsInItsPlace) {
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

TEST(Runner, StaysArmedAfterMisses) {
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

TEST_F(RunnerTest, ReleaseWaitsForACallUnderWay) {
  FakeNic nic;
  std::atomic<bool> inside{false};
  std::atomic<bool> go{false};
  std::atomic<bool> left{false};
  nic.in_progress = [&] {
    inside.store(true);
    while (!go.load()) std::this_thread::yield();
    left.store(true);
  };
  ASSERT_TRUE(runner_.adopt(nic));
  ASSERT_TRUE(comes([&] { return inside.load(); }));
  std::atomic<bool> left_before_release{false};
  std::thread releasing([&] {
    runner_.release(nic);
    left_before_release.store(left.load());
  });
  go.store(true);
  releasing.join();
  EXPECT_TRUE(left_before_release.load());
  const int calls = nic.calls.load();
  nic.arrive();
  runner_.wake();
  EXPECT_TRUE(falls_asleep());
  EXPECT_EQ(nic.calls.load(), calls);
}

TEST_F(RunnerTest, WatchesDescriptors) {
  const sys::OwnedFd fd(sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<int> called{0};
  ASSERT_TRUE(runner_.watch(fd.get(), [&] {
    std::uint64_t count = 0;
    if (sys::read(fd.get(), &count, sizeof count) > 0) called.fetch_add(1);
  }));
  const std::uint64_t one = 1;
  ASSERT_GT(sys::write(fd.get(), &one, sizeof one), 0);
  EXPECT_TRUE(comes([&] { return called.load() == 1; }));
  runner_.unwatch(fd.get());
  ASSERT_GT(sys::write(fd.get(), &one, sizeof one), 0);
  EXPECT_TRUE(falls_asleep());
  EXPECT_EQ(called.load(), 1);
}

TEST_F(RunnerTest, CallsOnceForWhatArrives) {
  const sys::OwnedFd fd(sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<int> called{0};
  ASSERT_TRUE(runner_.watch_arrivals(fd.get(), [&] { called.fetch_add(1); }));
  const std::uint64_t one = 1;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_GT(sys::write(fd.get(), &one, sizeof one), 0);
    EXPECT_TRUE(comes([&] { return called.load() == i; }));
    EXPECT_TRUE(falls_asleep()) << "it is readable still";
  }
  EXPECT_EQ(called.load(), 3);
  runner_.unwatch(fd.get());
}

/// Its descriptor is readable, and there is never anything to do.
class StuckNic final : public Driven {
 public:
  explicit StuckNic(bool lately) : lately_(lately) {}
  Progress progress(Time, std::uint32_t) override {
    calls.fetch_add(1);
    return {};
  }
  [[nodiscard]] std::optional<Time> next_timeout() const override { return std::nullopt; }
  [[nodiscard]] std::span<const int> descriptors() const override { return {&number_, 1}; }
  [[nodiscard]] bool attended(Time) const override { return false; }
  [[nodiscard]] bool polled_lately(Time) const override { return lately_; }
  void raise_fatal() override {}

  std::atomic<int> calls{0};

 private:
  sys::OwnedFd fd_{sys::eventfd(1, EFD_CLOEXEC)};
  int number_ = fd_.get();
  bool lately_;
};

TEST_F(RunnerTest, ADescriptorThatStaysReadableDoesNotSpinForEver) {
  StuckNic stuck(false);
  ASSERT_TRUE(runner_.adopt(stuck));
  // A spinning runner would still answer, but so must one that backs off.
  FakeNic nic;
  ASSERT_TRUE(runner_.adopt(nic));
  ASSERT_TRUE(comes([&] { return runner_.wakeups() > 3000; }));
  const int before = nic.calls.load();
  nic.arrive();
  EXPECT_TRUE(comes([&] { return nic.calls.load() > before; }));
  runner_.release(nic);
  runner_.release(stuck);
}

TEST(Runner, BesideAPollerItLetsGoOfSuchADescriptorSoon) {
  // The clock stands still, so what it let go of it does not take up again.
  ForkLedger ledger;
  Runner runner([] { return Time(1h); }, ledger);
  StuckNic stuck(true);
  ASSERT_TRUE(runner.adopt(stuck));
  ASSERT_TRUE(comes([&] { return stuck.calls.load() >= 5; }));
  const std::uint64_t wakeups = runner.wakeups();
  ASSERT_TRUE(comes([&] { return runner.wakeups() > wakeups + 50; }));
  EXPECT_LT(stuck.calls.load(), 10);
  runner.release(stuck);
}

/// More comes than it can work off, and it wants none of it.
class FloodedNic final : public Driven {
 public:
  explicit FloodedNic(std::atomic<Time>& clock) : clock_(clock) {}
  Progress progress(Time at, std::uint32_t budget) override {
    calls.fetch_add(1);
    clock_.store(at + 10us);
    return {.worked = true, .datagrams = budget, .unwanted = budget};
  }
  [[nodiscard]] std::optional<Time> next_timeout() const override { return std::nullopt; }
  [[nodiscard]] std::span<const int> descriptors() const override { return {&number_, 1}; }
  [[nodiscard]] bool attended(Time) const override { return false; }
  [[nodiscard]] bool polled_lately(Time) const override { return false; }
  void raise_fatal() override {}

  std::atomic<int> calls{0};

 private:
  std::atomic<Time>& clock_;
  sys::OwnedFd fd_{sys::eventfd(1, EFD_CLOEXEC)};
  int number_ = fd_.get();
};

TEST(Runner, InAFloodItRests) {
  ForkLedger ledger;
  std::atomic<Time> clock{Time(1h)};
  Runner runner([&] { return clock.load(); }, ledger);
  FloodedNic nic(clock);
  ASSERT_TRUE(runner.adopt(nic));
  // The clock moves only while it works, so it rests for ever, whoever rings.
  const auto rests_after = [&](int calls) {
    if (!comes([&] { return nic.calls.load() >= calls; })) return false;
    for (int i = 0; i < 50; ++i) {
      const std::uint64_t wakeups = runner.wakeups();
      runner.wake();
      if (!comes([&] { return runner.wakeups() > wakeups; })) return false;
    }
    return nic.calls.load() == calls;
  };
  // A turn ends with the datagrams that make a flood.
  ASSERT_TRUE(rests_after(4));
  clock.store(clock.load() + (FloodLimit::kShare - 1) * 40us);
  EXPECT_TRUE(rests_after(8));
  runner.release(nic);
}

TEST_F(RunnerTest, TheThreadIsNamedAndBlocksSignalsButThoseOfFaults) {
  FakeNic nic;
  ASSERT_TRUE(runner_.adopt(nic));
  ASSERT_TRUE(comes([&] { return nic.calls.load() > 0; }));
  bool found = false;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string line;
    std::string name;
    while (std::getline(status, line)) {
      if (line.starts_with("Name:")) name = line.substr(line.find('\t') + 1);
      if (name != "verbena-runner" || !line.starts_with("SigBlk:")) continue;
      found = true;
      // All but SIGKILL, SIGSTOP and the two that the C library keeps for itself.
      const auto blocked = std::stoull(line.substr(line.find('\t') + 1), nullptr, 16);
      for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGPROF})
        EXPECT_NE(blocked & (1ULL << (signal - 1)), 0U) << signal;
      // Faults in memory that the program took away.
      for (const int signal : {SIGSEGV, SIGBUS})
        EXPECT_EQ(blocked & (1ULL << (signal - 1)), 0U) << signal;
    }
  }
  EXPECT_TRUE(found);
  runner_.release(nic);
}

TEST_F(RunnerTest, ManyThreadsAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  std::array<std::thread, kThreads> threads;
  for (std::thread& thread : threads)
    thread = std::thread([&] {
      for (int round = 0; round < kRounds; ++round) {
        FakeNic nic;
        nic.is_polled.store(round % 3 == 0);
        ASSERT_TRUE(runner_.adopt(nic));
        for (int i = 0; i < 20; ++i) {
          runner_.wake();
          nic.arrive();
        }
        nic.is_polled.store(false);
        runner_.wake();
        ASSERT_TRUE(comes([&] { return nic.calls.load() > 0; }));
        runner_.release(nic);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// Numbers of this process's descriptors of a kind: what their links in /proc read.
std::vector<int> descriptors_of(const std::string& kind) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) == kind)
      found.push_back(std::stoi(entry.path().filename()));
  }
  return found;
}

TEST(Runner, WhoClosesItsDescriptorsIsTold) {
  ForkLedger ledger;
  const std::vector<int> others = descriptors_of("anon_inode:[eventpoll]");
  Runner runner(&now, ledger);
  FakeNic nic;
  ASSERT_TRUE(runner.adopt(nic));
  for (const int fd : descriptors_of("anon_inode:[eventpoll]")) {
    if (std::ranges::find(others, fd) == others.end()) ::syscall(SYS_close, fd);
  }
  EXPECT_TRUE(runner.wake());  // out of its sleep
  EXPECT_TRUE(comes([&] { return nic.failures.load() == 1; }));
  runner.release(nic);
}

TEST(Runner, WithoutWorkThereIsNoThread) {
  ForkLedger ledger;
  Runner runner(&now, ledger);
  runner.wake();
  EXPECT_EQ(runner.wakeups(), 0U);
}

}  // namespace
}  // namespace verbena::nic
