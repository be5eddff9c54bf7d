// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

/// Fences of which one side costs nothing. Two threads each write one thing and then read what the
/// other one writes; with a sequentially consistent fence between the two, in both, at least one
/// sees the other's. Where one does so often and the other seldom, the first may have
/// fence_lightly() and the second fence_everywhere(), which makes every thread of the process pass
/// a full fence (membarrier(2)): one that comes before the first's writing has its reading behind
/// it as well, and any other comes behind its writing.
namespace verbena {

namespace detail {

/// Whether the kernel can do so. From the library's initialization on, until a sandbox forbids it.
extern std::atomic<bool> fences_from_afar;

}  // namespace detail

/// The frequent side: keeps the compiler alone in order, or, where the kernel does not help, all.
inline void fence_lightly() {
  if (detail::fences_from_afar.load(std::memory_order_relaxed)) [[likely]] {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

/// The seldom side: a system call of some microseconds.
///
/// Threads: any.
void fence_everywhere();

/// Between threads of several processes, too: nothing that follows is read before the value stands
/// there for all to see, as with a sequentially consistent fence behind the store. With one locked
/// instruction, where that is a fence.
template <typename T>
void store_and_fence(std::atomic<T>& to, T value) {
#if defined(__x86_64__)
  to.exchange(value, std::memory_order_seq_cst);
#else
  to.store(value, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace verbena
