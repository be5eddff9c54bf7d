// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.h"

namespace verbena {

void Mutex::wait() {
  waiting_.fetch_add(1);
  fence_everywhere();
  while (!try_lock()) state_.wait(kHeld, std::memory_order_relaxed);
  waiting_.fetch_sub(1);
}

/// std::atomic asks whether anybody sleeps, too: that is not to come before the state is free.
void Mutex::wake() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  state_.notify_one();
}

}  // namespace verbena
