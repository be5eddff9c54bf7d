// SPDX-License-Identifier: Apache-2.0
#include "base/fence.h"

#include <linux/membarrier.h>

#include "base/sys.h"

namespace verbena {
namespace {

bool fence() { return sys::membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0; }

/// To be called before the first fence(), and in a forked child perhaps again.
bool prepare() { return sys::membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0; }

/// Longer than any processor keeps what it wrote to itself.
constexpr timespec kSettled{.tv_sec = 0, .tv_nsec = 1'000'000};

}  // namespace

std::atomic<bool> detail::fences_from_afar{prepare() && fence()};

void fence_everywhere() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!detail::fences_from_afar.load(std::memory_order_relaxed)) return;
  if (fence() || (prepare() && fence())) return;
  // A sandbox took the call away. From now on both sides have fences of their own; who is between
  // its writing and its reading is waited for.
  detail::fences_from_afar.store(false);
  sys::ppoll(nullptr, 0, &kSettled);
}

}  // namespace verbena
