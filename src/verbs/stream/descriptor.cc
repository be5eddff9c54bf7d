// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/descriptor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>

namespace verbena::verbs::streams {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Result<Flag> Flag::make() {
  Descriptor fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  VERBENA_TRY(detail::from_minus_one(fd.get(), "eventfd"));
  return Flag(std::move(fd));
}

void Flag::set() {
  if (std::exchange(set_, true)) return;
  constexpr std::uint64_t kOne = 1;
  // It cannot be full: it holds 0.
  [[maybe_unused]] const auto written = ::write(fd_.get(), &kOne, sizeof kOne);
}

void Flag::clear() {
  if (!std::exchange(set_, false)) return;
  std::uint64_t was = 0;
  [[maybe_unused]] const auto taken = ::read(fd_.get(), &was, sizeof was);
}

Result<Alarm> Alarm::make() {
  // The clock of std::chrono::steady_clock.
  Descriptor fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  VERBENA_TRY(detail::from_minus_one(fd.get(), "timerfd_create"));
  return Alarm(std::move(fd));
}

void Alarm::set(std::optional<Time> when, Time now) {
  const bool pending = set_for_ && *set_for_ > now;
  if (pending && when && *set_for_ <= *when) return;
  if (!set_for_ && !when) return;
  set_for_ = when;
  itimerspec at{};
  if (when) {
    const auto since = when->time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
    at.it_value.tv_sec = seconds.count();
    at.it_value.tv_nsec = std::chrono::nanoseconds(since - seconds).count();
  }
  [[maybe_unused]] const int set = timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

Result<Descriptor> any_of(std::initializer_list<int> fds) {
  Descriptor all(epoll_create1(EPOLL_CLOEXEC));
  VERBENA_TRY(detail::from_minus_one(all.get(), "epoll_create1"));
  for (const int fd : fds) {
    if (fd < 0) continue;
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    VERBENA_TRY(
        detail::from_minus_one(epoll_ctl(all.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl"));
  }
  return all;
}

}  // namespace verbena::verbs::streams
