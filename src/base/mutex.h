// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace verbena {

namespace detail {

/// Whether membarrier(2) makes every thread of the process pass a full fence, so that who unlocks
/// needs none. From the library's initialization on.
extern bool fences_from_afar;

}  // namespace detail

/// A mutex for the data path's short critical sections. While nobody waits, lock() is one atomic
/// instruction in place and unlock() a plain store; std::mutex's are calls of forty instructions
/// with an atomic one each. Whoever waits sleeps in the kernel. Taken by std::scoped_lock.
///
/// No wake-up is lost:
///   unlocker: U1 the state becomes free   U2 looks whether somebody waits
///   waiter:   W1 says that it waits       W2 a fence in every thread   W3 tries to lock, or sleeps
/// A processor may do U2 before U1 is visible to others. If W2 reaches the unlocker before U2, U2
/// sees W1. If after, U1 came before the fence, too, and W3 finds the state free. Where the kernel
/// has no such fence, U1 is an atomic exchange, and a fence itself.
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
    if (detail::fences_from_afar) [[likely]] {
      state_.store(kFree, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      state_.exchange(kFree);
    }
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
