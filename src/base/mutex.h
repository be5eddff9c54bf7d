// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "base/fence.h"

namespace verbena {

/// A mutex for the data path's short critical sections. While nobody waits, lock() is one atomic
/// instruction in place and unlock() a plain store; std::mutex's are calls of forty instructions
/// with an atomic one each. Whoever waits sleeps in the kernel. Taken by std::scoped_lock.
///
/// No wake-up is lost:
///   unlocker: U1 the state becomes free   U2 looks whether somebody waits
///   waiter:   W1 says that it waits       W2 tries to lock, or sleeps
/// with fence_lightly() between the first two and fence_everywhere() between the others: either U2
/// sees W1, or W2 finds the state free.
///
/// Threads: all calls are safe from any thread; not recursive.
class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  [[nodiscard]] bool try_lock() {
    int expected = kFree;
    return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() {
    state_.store(kFree, std::memory_order_release);
    fence_lightly();
    if (waiting_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      wake();
  }

 private:
  static constexpr int kFree = 0;
  static constexpr int kHeld = 1;

  void wait();
  void wake();

  std::atomic<int> state_{kFree};
  std::atomic<int> waiting_{0};
};

}  // namespace verbena
