// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.h"

#include <linux/membarrier.h>

#include "base/sys.h"

namespace verbena {
namespace {

bool prepare_fences() { return sys::membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0; }

/// A forked child may have to say anew that it wants them. Nothing else can fail.
void fence_everywhere() {
  if (!detail::fences_from_afar) return;
  while (sys::membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 && prepare_fences()) {}
}

}  // namespace

bool detail::fences_from_afar = prepare_fences();

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
