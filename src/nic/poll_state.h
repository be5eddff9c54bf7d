// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace verbena::nic {

/// Whether application threads drive the NIC so that nobody else need: because they poll often, or
/// wait for its completions and take in what comes by themselves.
///
/// POLLED begins with the 64th poll that came no more than 50 µs after the one before (in a
/// virtual machine an interruption takes 20 to 50), and ends 50 µs after the last, 200
/// behind the 128th (whoever looks has interrupted it, maybe in a long copy), or when a
/// completion queue is armed. A longer gap takes kGapCost polls back, of at most kMostPolls:
/// a thread that was preempted for a moment goes on polling, be it some times in a row, one
/// that polls a little between other work never gets there. What a thread does in the NIC is
/// no gap, be it ever so long: taking in what came, or posting, for a while without a poll.
/// Where that was much it counts as kMuchWork polls more: who moves large messages polls
/// only once for each. Several threads polling count together; a lost count among them only
/// delays POLLED.
///
/// Threads: all calls are safe from any thread.
class PollState {
 public:
  static constexpr std::uint32_t kPolls = 64;
  static constexpr std::uint32_t kMostPolls = 4 * kPolls;
  static constexpr std::uint32_t kGapCost = 16;
  static constexpr std::uint32_t kMuchWork = 8;
  static constexpr Duration kGap = std::chrono::microseconds(50);
  static constexpr Duration kSilence = std::chrono::microseconds(50);
  static constexpr std::uint32_t kManyPolls = 2 * kPolls;
  static constexpr Duration kSilenceOfMany = std::chrono::microseconds(200);
  static constexpr Duration kPosting = std::chrono::microseconds(200);
  static constexpr Duration kLately = std::chrono::milliseconds(1);
  /// More than a scheduler's slice.
  static constexpr Duration kSeen = std::chrono::milliseconds(5);
  static constexpr Duration kWaits = std::chrono::seconds(1);
  static constexpr Duration kBack = std::chrono::microseconds(100);

  void poll(Time now) {
    const auto at = now.time_since_epoch().count();
    const auto before = last_.load(std::memory_order_relaxed);
    const std::uint32_t polls = polls_.load(std::memory_order_relaxed);
    if (at - before > kGap.count()) {
      polls_.store(polls > kGapCost ? polls - kGapCost : 1, std::memory_order_relaxed);
      note_processor();
    } else if (polls < kMostPolls) {
      count(polls + 1);
    }
    last_.store(at, std::memory_order_relaxed);
    last_poll_.store(at, std::memory_order_relaxed);
  }

  /// A thread took completions that were there, and drove nothing.
  void take() { taking_.store(true, std::memory_order_relaxed); }

  /// A thread that polls or posts goes to work, maybe for long; of several at once one is noted.
  void enter() { inside_.store(true, std::memory_order_relaxed); }
  void leave() { inside_.store(false, std::memory_order_relaxed); }

  /// A poll found another thread inside.
  void turn_away() {
    if (polls_.load(std::memory_order_relaxed) >= kPolls)
      turned_away_.store(true, std::memory_order_relaxed);
  }
  /// Whether one did since the last call that came after many others: its thread drives the NIC as
  /// soon as it can. It may have waited for the processor that the one inside has.
  [[nodiscard]] bool take_turned_away() {
    return turned_away_.load(std::memory_order_relaxed) &&
           turned_away_.exchange(false, std::memory_order_relaxed);
  }

  /// A poll ends now that had much to do.
  void end_poll(Time now) {
    last_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    last_poll_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    count_much_work();
  }

  /// So does a post. It takes nothing in, so it must be within kPosting of a poll.
  void end_post(Time now) {
    const auto at = now.time_since_epoch().count();
    if (at - last_poll_.load(std::memory_order_relaxed) > kPosting.count()) return;
    last_.store(at, std::memory_order_relaxed);
    count_much_work();
  }

  /// Back to ARMED; returns whether it was POLLED.
  bool disarm(Time now) {
    const bool was = polled(now);
    polls_.store(0, std::memory_order_relaxed);
    disarmed_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    return was;
  }

  /// A thread that drives goes to sleep on the NIC's descriptors.
  void fall_asleep() {
    sleepers_.fetch_add(1, std::memory_order_relaxed);
    sleeps_.fetch_add(1, std::memory_order_relaxed);
  }
  void wake_up(Time now) {
    woke_up_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  /// It leaves the rest to others.
  void give_up() { woke_up_.store(0, std::memory_order_relaxed); }
  [[nodiscard]] bool slept_on() const { return sleepers_.load(std::memory_order_relaxed) != 0; }
  /// How often one fell asleep.
  [[nodiscard]] std::uint32_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }

  /// POLLED, or some thread sleeps or has just woken up.
  [[nodiscard]] bool attended(Time now) const {
    return polled(now) || slept_on() ||
           now.time_since_epoch().count() - woke_up_.load(std::memory_order_relaxed) <=
               kSilence.count();
  }

  [[nodiscard]] bool polled(Time now) const {
    return polled_before(now) || (polls_.load(std::memory_order_relaxed) >= kPolls &&
                                  inside_.load(std::memory_order_relaxed));
  }
  /// The same for who is inside itself; of others inside it does not know.
  [[nodiscard]] bool polled_before(Time now) const {
    const std::uint32_t polls = polls_.load(std::memory_order_relaxed);
    const Duration silence = polls >= kManyPolls ? kSilenceOfMany : kSilence;
    return polls >= kPolls &&
           now.time_since_epoch().count() - last_.load(std::memory_order_relaxed) <=
               silence.count();
  }

  /// Some thread has polled within kBack, or often and within kLately, and waits for no
  /// notification: it polls or posts again soon.
  [[nodiscard]] bool expected_back(Time now) const {
    const std::uint32_t polls = polls_.load(std::memory_order_relaxed);
    const Duration back = polls >= kPolls ? kLately : kBack;
    return polls != 0 &&
           now.time_since_epoch().count() - last_.load(std::memory_order_relaxed) <= back.count();
  }

  /// Some thread has polled, or woken up, within kLately: it may be back at any moment. Or one is
  /// inside, be it ever so long: it may wait for the processor of whoever looks.
  [[nodiscard]] bool polled_lately(Time now) const {
    if (inside_.load(std::memory_order_relaxed)) return true;
    const auto latest =
        std::max(last_.load(std::memory_order_relaxed), woke_up_.load(std::memory_order_relaxed));
    return now.time_since_epoch().count() - latest <= kLately.count();
  }

  /// Some thread has polled or taken completions within kSeen, last on the processor that the
  /// caller has now: it may be waiting for that. Not where one waits for notifications, that is,
  /// armed a completion queue within kWaits and was not POLLED since: it sleeps between them, and
  /// what wakes it should not wait. For one caller, which asks again and again.
  [[nodiscard]] bool seen_here(Time now) {
    if (taking_.load(std::memory_order_relaxed)) {
      taking_.store(false, std::memory_order_relaxed);
      seen_taking_ = now;
    }
    const auto at = now.time_since_epoch().count();
    const auto latest =
        std::max(last_.load(std::memory_order_relaxed), seen_taking_.time_since_epoch().count());
    return at - latest <= kSeen.count() &&
           at - disarmed_.load(std::memory_order_relaxed) > kWaits.count() &&
           processor_.load(std::memory_order_relaxed) == ::sched_getcpu();
  }

 private:
  static constexpr Duration::rep kLongAgo = -Duration(kWaits).count();

  void note_processor() { processor_.store(::sched_getcpu(), std::memory_order_relaxed); }

  /// Of a thread that polls: one that waits for a notification does not begin to.
  void count_much_work() {
    const std::uint32_t polls = polls_.load(std::memory_order_relaxed);
    if (polls != 0 && polls < kPolls) count(polls + kMuchWork);
  }

  void count(std::uint32_t polls) {
    polls_.store(polls, std::memory_order_relaxed);
    if (polls >= kPolls) disarmed_.store(kLongAgo, std::memory_order_relaxed);
  }

  std::atomic<Duration::rep> last_{0};
  std::atomic<Duration::rep> last_poll_{0};
  std::atomic<std::uint32_t> polls_{0};
  std::atomic<bool> inside_{false};
  std::atomic<bool> turned_away_{false};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> sleeps_{0};
  std::atomic<Duration::rep> woke_up_{0};
  std::atomic<Duration::rep> disarmed_{kLongAgo};  ///< or POLLED since
  std::atomic<int> processor_{-1};                 ///< where a thread polled behind a gap
  std::atomic<bool> taking_{false};                ///< since seen_here()
  Time seen_taking_{};                             ///< by it
};

}  // namespace verbena::nic
