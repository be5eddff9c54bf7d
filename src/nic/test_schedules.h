// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: a small model checker for code over sequentially consistent atomics.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace verbena::nic::testing {

/// Runs the same threads again and again, each time in another order of their atomic operations,
/// until every order with at most `max_preemptions` has been run. One thread runs at a time; at
/// each operation of a ModelAtomic another one may go on.
class Schedules {
 public:
  using Body = std::function<void()>;

  explicit Schedules(int max_preemptions) : max_preemptions_(max_preemptions) {}

  /// `make` sets up one run and returns its threads' bodies; `check` looks at what came out, false
  /// ends the search. Returns the number of runs; nothing after a deadlock or a failed check.
  std::optional<std::uint64_t> explore(const std::function<std::vector<Body>()>& make,
                                       const std::function<bool()>& check) {
    std::uint64_t runs = 0;
    choices_.clear();
    do {
      run(make());
      ++runs;
      if (deadlock_ || !check()) return std::nullopt;
    } while (next());
    return runs;
  }

  /// Called by the thread that runs, before each of its operations.
  static void point() {
    if (current_ != nullptr) current_->pause(Pause::kReady, nullptr);
  }
  /// The thread sleeps until wake_one() of the same place.
  static void sleep(const void* place) { current_->pause(Pause::kAsleep, place); }
  static void wake_one(const void* place) {
    for (Thread& thread : current_->threads_) {
      if (!thread.done && thread.asleep_at == place) {
        thread.asleep_at = nullptr;
        return;
      }
    }
  }

 private:
  enum class Pause { kReady, kAsleep, kDone };
  struct Thread {
    std::condition_variable turn;
    const void* asleep_at = nullptr;
    bool done = false;
  };
  struct Choice {
    std::size_t taken = 0;
    std::size_t of = 0;
  };
  struct Abandon {};  ///< unwinds the threads of a run that cannot go on

  void run(const std::vector<Body>& bodies) {
    threads_ = std::vector<Thread>(bodies.size());
    position_ = 0;
    preemptions_ = 0;
    deadlock_ = false;
    running_ = kNobody;
    std::vector<std::thread> made;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      made.emplace_back([this, i, &body = bodies[i]] {
        current_ = this;
        try {
          wait_for_turn(i);
          body();
        } catch (const Abandon&) {}
        finish(i);
      });
    }
    {
      const std::unique_lock lock(mutex_);
      choose(kNobody);
    }
    for (std::thread& thread : made) thread.join();
  }

  void wait_for_turn(std::size_t self) {
    std::unique_lock lock(mutex_);
    threads_[self].turn.wait(lock, [&] { return running_ == self || deadlock_; });
    if (deadlock_) throw Abandon{};
  }

  void pause(Pause why, const void* place) {
    std::unique_lock lock(mutex_);
    if (deadlock_) throw Abandon{};
    const std::size_t self = running_;
    if (why == Pause::kAsleep) threads_[self].asleep_at = place;
    choose(why == Pause::kReady ? self : kNobody);
    if (running_ == self) return;
    threads_[self].turn.wait(lock, [&] { return running_ == self || deadlock_; });
    if (deadlock_) throw Abandon{};
  }

  void finish(std::size_t self) {
    const std::unique_lock lock(mutex_);
    threads_[self].done = true;
    if (!deadlock_) choose(kNobody);
  }

  /// Decides who goes on; `going` is the one that could, and taking another costs a preemption.
  void choose(std::size_t going) {
    std::vector<std::size_t> can;
    if (going != kNobody) can.push_back(going);
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      if (i != going && !threads_[i].done && threads_[i].asleep_at == nullptr) can.push_back(i);
    }
    if (can.empty()) {
      bool all_done = true;
      for (const Thread& thread : threads_) all_done = all_done && thread.done;
      running_ = kNobody;
      if (!all_done) {
        deadlock_ = true;
        for (Thread& thread : threads_) thread.turn.notify_one();
      }
      return;
    }
    if (going != kNobody && preemptions_ >= max_preemptions_) can.resize(1);
    if (position_ == choices_.size()) choices_.push_back({.taken = 0, .of = can.size()});
    const std::size_t taken = choices_[position_++].taken;
    if (going != kNobody && taken != 0) ++preemptions_;
    running_ = can[taken];
    threads_[running_].turn.notify_one();
  }

  /// Makes the next run differ in its last choice that has an alternative left.
  bool next() {
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().of) {
      choices_.pop_back();
    }
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    return true;
  }

  static constexpr std::size_t kNobody = ~std::size_t{0};
  static inline thread_local Schedules* current_ = nullptr;

  const int max_preemptions_;
  std::mutex mutex_;
  std::vector<Thread> threads_;
  std::vector<Choice> choices_;
  std::size_t position_ = 0;
  std::size_t running_ = kNobody;
  int preemptions_ = 0;
  bool deadlock_ = false;
};

/// An atomic whose operations are points of a schedule. A weak exchange does not fail by itself.
template <typename T>
class ModelAtomic {
 public:
  ModelAtomic() = default;
  ModelAtomic(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic

  [[nodiscard]] T load() const { return at_point(); }
  /// In the one order that there is here, whatever is asked for.
  void store(T value, std::memory_order = std::memory_order_seq_cst) { at_point() = value; }
  T exchange(T value) { return std::exchange(at_point(), value); }
  bool compare_exchange_strong(T& expected, T value) {
    T& now = at_point();
    if (now != expected) {
      expected = now;
      return false;
    }
    now = value;
    return true;
  }
  bool compare_exchange_weak(T& expected, T value) {
    return compare_exchange_strong(expected, value);
  }
  T fetch_add(T by) { return std::exchange(at_point(), value_ + by); }
  T fetch_sub(T by) { return std::exchange(at_point(), value_ - by); }
  void wait(T old) const {
    while (at_point() == old) Schedules::sleep(this);
  }
  void notify_one() const {
    Schedules::point();
    Schedules::wake_one(this);
  }

 private:
  T& at_point() const {
    Schedules::point();
    return value_;
  }
  mutable T value_{};
};

}  // namespace verbena::nic::testing
