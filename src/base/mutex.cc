// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.h"

#include <linux/membarrier.h>
#include <sched.h>

#include "base/sys.h"

namespace verbena {
namespace {

bool fence() { return sys::membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0; }

/// To be called before the first fence(), and in a forked child perhaps again.
bool prepare_fences() { return sys::membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0; }

/// Whether who unlocks from now on sees who waits. A sandbox may take the call away later.
bool fence_everywhere() {
  return !detail::fences_from_afar || fence() || (prepare_fences() && fence());
}

}  // namespace

bool detail::fences_from_afar = prepare_fences() && fence();

void Mutex::wait() {
  waiting_.fetch_add(1);
  const bool seen = fence_everywhere();
  while (!try_lock()) {
    if (seen) {
      state_.wait(kHeld, std::memory_order_relaxed);
    } else {
      ::sched_yield();
    }
  }
  waiting_.fetch_sub(1);
}

/// std::atomic asks whether anybody sleeps, too: that is not to come before the state is free.
void Mutex::wake() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  state_.notify_one();
}

}  // namespace verbena
