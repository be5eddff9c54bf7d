// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: a runner, and a NIC as far as it sees one.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "nic/fork_ledger.h"
#include "nic/runner.h"

namespace verbena::nic::testing {

using namespace std::chrono_literals;

inline Time now() {
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
  [[nodiscard]] bool polled_lately(Time) const override {
    return is_polled.load() || was_polled.load();
  }
  [[nodiscard]] bool seen_here(Time) override { return is_seen_here.load(); }
  [[nodiscard]] bool slept_on() const override { return is_slept_on.load(); }
  [[nodiscard]] std::uint32_t sleeps() const override {
    return keeps_sleeping_anew.load() ? sleep_count.fetch_add(1) : sleep_count.load();
  }
  [[nodiscard]] MaySleep may_sleep(Time) override { return may.load(); }
  [[nodiscard]] bool turned_away() override { return turns_away.exchange(false); }
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
  std::atomic<bool> was_polled{false};  ///< a moment ago
  std::atomic<bool> is_seen_here{false};
  std::atomic<bool> is_slept_on{false};
  std::atomic<bool> turns_away{false};
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

}  // namespace verbena::nic::testing
