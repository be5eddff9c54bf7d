// SPDX-License-Identifier: Apache-2.0
#include "nic/event_ledger.h"

#include <pthread.h>

#include <memory>

namespace verbena::nic {
namespace {

constexpr std::uint32_t kMaxInterrupts = 1U << 20;

}  // namespace

void EventLedger::deliver() {
  const std::scoped_lock lock(mutex_);
  ++delivered_;
}

void EventLedger::acknowledge(std::uint32_t events) {
  const std::scoped_lock lock(mutex_);
  acknowledged_ += events;
  if (waiter_ != nullptr && acknowledged_ >= delivered_) waiter_->signal();
}

bool EventLedger::settled() {
  const std::scoped_lock lock(mutex_);
  return acknowledged_ >= delivered_;
}

Result<void> EventLedger::settle(Host& host) {
  if (settled()) return {};
  // Only a program that destroys before it acknowledges comes here, so the notifier is made now.
  const std::unique_ptr<Notifier> notifier = VERBENA_TRY(host.make_notifier());
  {
    const std::scoped_lock lock(mutex_);
    waiter_ = notifier.get();
  }
  Waited waited = Waited::kInterrupted;
  // Nor is a thread cancelled here, with the object half destroyed.
  int cancel_state = PTHREAD_CANCEL_ENABLE;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  // A signal handler does not end ibv_destroy_*. A host that is no more (after fork) always
  // interrupts.
  for (std::uint32_t i = 0; i < kMaxInterrupts && waited == Waited::kInterrupted; ++i) {
    waited = host.wait([this] { return settled(); }, notifier.get(), nullptr);
  }
  ::pthread_setcancelstate(cancel_state, nullptr);
  const std::scoped_lock lock(mutex_);
  waiter_ = nullptr;
  if (waited == Waited::kInterrupted) return fail(std::errc::interrupted);
  if (waited == Waited::kDeadlock) {
    return fail(std::errc::resource_deadlock_would_occur,
                "destroying an object whose events nobody acknowledges");
  }
  return {};
}

}  // namespace verbena::nic
