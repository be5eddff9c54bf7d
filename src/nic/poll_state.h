// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace verbena::nic {

/// Whether application threads poll so often that nobody else need drive the NIC.
///
/// POLLED begins with the 64th poll that came no more than 50 µs after the one before (in a virtual
/// machine an interruption takes 20 to 50), and ends 50 µs after the last or when a completion
/// queue is armed. A longer gap takes kGapCost polls back: a thread that was preempted for a moment
/// goes on polling, one that polls a little between other work never gets there. Several threads
/// polling count together; a lost count among them only delays POLLED.
///
/// Threads: all calls are safe from any thread.
class PollState {
 public:
  static constexpr std::uint32_t kPolls = 64;
  static constexpr std::uint32_t kGapCost = 16;
  static constexpr Duration kGap = std::chrono::microseconds(50);
  static constexpr Duration kSilence = std::chrono::microseconds(50);
  static constexpr Duration kLately = std::chrono::milliseconds(1);
  static constexpr Duration kBack = std::chrono::microseconds(100);

  void poll(Time now) {
    const auto at = now.time_since_epoch().count();
    const auto before = last_.load(std::memory_order_relaxed);
    const std::uint32_t polls = polls_.load(std::memory_order_relaxed);
    if (at - before > kGap.count()) {
      polls_.store(polls > kGapCost ? polls - kGapCost : 1, std::memory_order_relaxed);
    } else if (polls < kPolls) {
      polls_.store(polls + 1, std::memory_order_relaxed);
    }
    last_.store(at, std::memory_order_relaxed);
  }

  /// Back to ARMED; returns whether it was POLLED.
  bool disarm(Time now) {
    const bool was = polled(now);
    polls_.store(0, std::memory_order_relaxed);
    return was;
  }

  [[nodiscard]] bool polled(Time now) const {
    return polls_.load(std::memory_order_relaxed) >= kPolls &&
           now.time_since_epoch().count() - last_.load(std::memory_order_relaxed) <=
               kSilence.count();
  }

  /// Some thread has polled within kBack and waits for no notification: it polls or posts again
  /// soon.
  [[nodiscard]] bool expected_back(Time now) const {
    return polls_.load(std::memory_order_relaxed) != 0 &&
           now.time_since_epoch().count() - last_.load(std::memory_order_relaxed) <= kBack.count();
  }

  /// Some thread has polled within kLately: it may be back at any moment.
  [[nodiscard]] bool polled_lately(Time now) const {
    return now.time_since_epoch().count() - last_.load(std::memory_order_relaxed) <=
           kLately.count();
  }

 private:
  std::atomic<Duration::rep> last_{0};
  std::atomic<std::uint32_t> polls_{0};
};

}  // namespace verbena::nic
