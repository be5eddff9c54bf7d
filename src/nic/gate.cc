// SPDX-License-Identifier: Apache-2.0
#include "nic/gate.h"

namespace verbena::nic {

bool Gate::try_enter() {
  if (waiting_.load() != 0) return false;
  std::uint32_t expected = kFree;
  return state_.compare_exchange_strong(expected, kHeld);
}

void Gate::enter() {
  std::uint32_t expected = kFree;
  if (state_.compare_exchange_strong(expected, kHeld)) return;
  waiting_.fetch_add(1);
  // The three-state futex lock (Drepper, "Futexes are tricky", 2011): whoever had to wait marks the
  // gate as awaited, since it cannot know whether others wait too.
  while (state_.exchange(kHeldAndAwaited) != kFree) state_.wait(kHeldAndAwaited);
  waiting_.fetch_sub(1);
}

void Gate::release() {
  if (state_.exchange(kFree) == kHeldAndAwaited) state_.notify_one();
}

bool Gate::leave() {
  release();
  return rung() && try_enter();
}

bool Gate::leave_for_good() {
  release();
  return rung();
}

void Gate::ring(Doorbell& bell) {
  if (bell.rung.exchange(true)) return;
  Doorbell* head = bells_.load();
  do {
    bell.next = head;
  } while (!bells_.compare_exchange_weak(head, &bell));
}

Doorbell* Gate::take() {
  if (bells_.load() == nullptr) return nullptr;
  Doorbell* newest = bells_.exchange(nullptr);
  Doorbell* oldest = nullptr;
  while (newest != nullptr) {
    Doorbell* const next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  return oldest;
}

}  // namespace verbena::nic
