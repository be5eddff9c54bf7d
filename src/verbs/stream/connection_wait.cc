// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "verbs/deadline.h"
#include "verbs/stream/connection.h"

namespace verbena::verbs::streams {
namespace {

using Clock = std::chrono::steady_clock;

/// For poll(2), -1 for ever. Rounded up: who wakes too early would only sleep again.
int milliseconds_until(std::optional<Clock::time_point> when, Clock::time_point now) {
  if (!when) return -1;
  const std::int64_t left = std::chrono::ceil<std::chrono::milliseconds>(*when - now).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
}

std::optional<Clock::time_point> earlier(std::optional<Clock::time_point> one,
                                         std::optional<Clock::time_point> other) {
  if (!one || !other) return one ? one : other;
  return std::min(*one, *other);
}

}  // namespace

connection::Deadline connection::deadline_of(stream_timeout timeout) const {
  if (!timeout) return std::nullopt;
  return deadline_after(resources_.options.now(), *timeout);
}

Result<> connection::wait(Lock& lock, Deadline deadline, const char* verb, const Ready& ready) {
  auto seen = progress_;
  auto last_progress = resources_.options.now();
  for (;;) {
    pump();
    if (ready()) {
      serve_parked();
      return {};
    }
    const auto now = resources_.options.now();
    if (std::exchange(seen, progress_) != progress_) last_progress = now;
    if (deadline && now >= *deadline) {
      serve_parked();
      return fail(std::errc::timed_out, verb, "the time-out is over");
    }
    if (!is_over(resources_.options.spin, last_progress, now)) {
      lock.unlock();
      lock.lock();
    } else if (driving_) {
      ++waiting_;
      if (deadline)
        changed_.wait_until(lock, *deadline);
      else
        changed_.wait(lock);
      --waiting_;
    } else {
      drive(lock, now, deadline);
    }
  }
}

/// Sleeps until something may have happened, for all that wait.
void connection::drive(Lock& lock, Clock::time_point now, Deadline deadline) {
  driving_ = true;
  // Asked first, looked then: what completes between the two puts no event on the channel.
  const auto before = progress_;
  const bool all = arm();
  core().handle_timeout(now);
  post();
  serve_parked();
  if (all && progress_ == before) {
    const int at_most = milliseconds_until(earlier(deadline, core().poll_timeout(now)), now);
    std::array<pollfd, 3> fds{{{.fd = resources_.channel.fd(), .events = POLLIN, .revents = 0},
                               {.fd = wake_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = origin_->fd(), .events = POLLIN, .revents = 0}}};
    asleep_ = true;
    lock.unlock();
    // However it ends, the caller looks again.
    (void)::poll(fds.data(), fds.size(), at_most);
    lock.lock();
    asleep_ = false;
    wake_.clear();
    take_events();
  }
  driving_ = false;
  if (waiting_ != 0) changed_.notify_all();
}

/// Asks for an event and looks at what may have come before; whether that was all.
bool connection::arm() {
  if (!armed_) {
    if (const auto asked = resources_.cq.request_notification(); !asked) {
      fail_with(asked.error());
      return true;
    }
    armed_ = true;
  }
  return pump();
}

/// Only of the thread that drives, or of one that does not sleep while none does.
void connection::take_events() {
  if (armed_) {
    const auto event = resources_.channel.get_event();
    if (event)
      armed_ = false;
    else if (!event.error().would_block())
      fail_with(event.error());
  }
  check_origin();
}

/// Something came: whoever sleeps looks whether it was for him.
void connection::after_progress() {
  ++progress_;
  if (asleep_) wake_.set();
}

// --- Without waiting

Result<> connection::look(Side& side, const Ready& ready) {
  if (!asleep_) take_events();
  pump();
  if (ready()) {
    serve_parked();
    return {};
  }
  side.parked = true;
  keep_alive();
  serve_parked();
  if (!ready()) return fail(std::errc::operation_would_block, "stream");
  side.parked = false;
  return {};
}

/// Who waits with a descriptor sleeps until then at most, and comes back.
void connection::keep_alive() {
  const auto now = resources_.options.now();
  core().handle_timeout(now);
  post();
  if (alarm_) alarm_->set(core().poll_timeout(now), now);
}

/// Those who wait with their descriptors: an event is asked for, and who could go on is told. To
/// be called after whatever took an event or a completion that was another's.
void connection::serve_parked() {
  if (!reader_.parked && !writer_.parked) {
    reader_.ready.clear();
    writer_.ready.clear();
    return;
  }
  const bool all = arm();
  const auto tell = [all](Side& side, bool can_go_on) {
    if (side.parked && (can_go_on || !all))
      side.ready.set();
    else
      side.ready.clear();
  };
  tell(reader_, has_to_read());
  tell(writer_, has_room());
}

int connection::fd_of(Side& side) {
  const std::lock_guard lock(mutex_);
  if (side.fd.get() < 0) {
    if (!alarm_) {
      auto alarm = Alarm::make();
      if (!alarm) return -1;
      alarm_ = std::move(*alarm);
      const auto now = resources_.options.now();  // who asks may have been told to wait already
      alarm_->set(core().poll_timeout(now), now);
    }
    auto fd = any_of({resources_.channel.fd(), side.ready.fd(), origin_->fd(), alarm_->fd()});
    if (fd) side.fd = std::move(*fd);
  }
  return side.fd.get();
}

}  // namespace verbena::verbs::streams
