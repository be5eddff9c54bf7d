// SPDX-License-Identifier: Apache-2.0
#include "base/fence.h"

#include <linux/membarrier.h>
#include <sched.h>

#include <chrono>

#include "base/sys.h"

namespace verbena {
namespace {

bool fence() { return sys::membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0; }

/// To be called before the first fence(), and in a forked child perhaps again.
bool prepare() { return sys::membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0; }

/// Longer than any processor keeps what it wrote to itself.
constexpr std::chrono::milliseconds kSettled{1};

const bool kCouldAtFirst = prepare() && fence();

}  // namespace

std::atomic<bool> detail::fences_from_afar{kCouldAtFirst};

void fence_everywhere() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!kCouldAtFirst || fence() || (prepare() && fence())) return;
  // A sandbox took the call away. From now on both sides have fences of their own; who is between
  // its writing and its reading is waited for, by each that comes here.
  detail::fences_from_afar.store(false);
  const auto settled = std::chrono::steady_clock::now() + kSettled;
  while (std::chrono::steady_clock::now() < settled) ::sched_yield();
}

}  // namespace verbena
