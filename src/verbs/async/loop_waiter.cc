// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "verbena/async/event_loop.h"

namespace verbena::verbs::detail {

bool loop_waiter::await_suspend(std::coroutine_handle<> waiter) {
  waiter_ = waiter;
  if (stop_.stop_requested()) {
    how_ = fail(std::errc::operation_canceled, "event loop", "a stop was requested");
    return false;
  }
  how_ = arm();
  if (!how_) return false;
  armed_ = true;
  stopped_.of = this;
  if (stop_.stop_possible()) on_stop_.emplace(stop_, stopper{this});
  return true;
}

Result<> loop_waiter::await_resume() {
  forget_stop();
  return std::move(how_);
}

/// By the loop's thread.
void loop_waiter::wake_with(Result<> how) noexcept {
  how_ = std::move(how);
  armed_ = false;
  disarm();
  loop_.ready_.push_back(*this);
}

void loop_waiter::give_up() noexcept {
  forget_stop();
  if (std::exchange(armed_, false)) disarm();
  unlink();
}

/// By any thread: the loop's sees to the rest.
void loop_waiter::stopper::operator()() const noexcept {
  {
    const std::scoped_lock lock(of->loop_.mutex_);
    if (!of->stopped_.linked()) of->loop_.stopped_.push_back(of->stopped_);
  }
  of->loop_.wake();
}

void loop_waiter::forget_stop() noexcept {
  if (!on_stop_) return;
  on_stop_.reset();
  const std::scoped_lock lock(loop_.mutex_);
  stopped_.unlink();
}

fd_waiter::fd_waiter(loop_base& loop, int of, short wanted, wait_options until) noexcept
    : loop_waiter(loop, std::move(until.stop)), deadline_(until.deadline) {
  fd = of;
  events = wanted;
}
void fd_waiter::notice() noexcept { wake_with({}); }
Result<> fd_waiter::arm() {
  VERBENA_TRY(loop_.watch(*this));
  if (deadline_) place_ = loop_.timers_.emplace(*deadline_, this);
  return {};
}
void fd_waiter::disarm() noexcept {
  loop_.unwatch(*this);
  if (deadline_) loop_.timers_.erase(place_);
}
void fd_waiter::due() noexcept {
  wake_with(fail(std::errc::timed_out, "event loop", "the deadline is over"));
}

Result<> timer_waiter::arm() {
  place_ = loop_.timers_.emplace(when_, this);
  return {};
}
void timer_waiter::disarm() noexcept { loop_.timers_.erase(place_); }
void timer_waiter::due() noexcept { wake_with({}); }

}  // namespace verbena::verbs::detail
