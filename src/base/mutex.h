// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace verbena {

/// A mutex for the data path's short critical sections. While nobody waits, lock() and unlock() are
/// one atomic instruction each, in place; std::mutex's are calls of forty instructions. Whoever
/// waits sleeps in the kernel. Taken by std::scoped_lock.
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
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]]
      state_.notify_one();
  }

 private:
  static constexpr int kFree = 0;
  static constexpr int kHeld = 1;
  static constexpr int kAwaited = 2;  ///< held, and somebody may wait

  /// Whoever has waited leaves kAwaited behind, since others may wait still: one notification too
  /// many is only slow.
  [[gnu::noinline]] void wait() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
      state_.wait(kAwaited, std::memory_order_relaxed);
  }

  std::atomic<int> state_{kFree};
};

}  // namespace verbena
