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

#include "nic/test_runner.h"

namespace verbena::nic {
namespace {

using namespace std::chrono_literals;
using testing::comes;
using testing::FakeNic;
using testing::now;
using testing::RunnerTest;

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
