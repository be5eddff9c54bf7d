// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/epoll_loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

namespace verbena::verbs {
namespace {

// poll(2) and epoll(7) have the same bits.
static_assert(static_cast<unsigned>(EPOLLIN) == POLLIN);
static_assert(static_cast<unsigned>(EPOLLOUT) == POLLOUT);
constexpr unsigned kAlways = EPOLLERR | EPOLLHUP;

}  // namespace

Result<std::unique_ptr<epoll_loop>> epoll_loop::create(const loop_options& options) {
  std::unique_ptr<epoll_loop> made(new epoll_loop(options));
  made->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  VERBENA_TRY(detail::from_minus_one(made->epoll_, "epoll_create1"));
  VERBENA_TRY(made->open());
  return made;
}

epoll_loop::~epoll_loop() {
  shut();
  if (epoll_ >= 0) ::close(epoll_);
}

/// Registers what all that watch the descriptor want together.
Result<> epoll_loop::settle(int fd, of_fd& of) {
  unsigned wanted = 0;
  for (const detail::watched* one : of.all) wanted |= static_cast<unsigned>(one->events);
  if (wanted == of.registered) return {};
  epoll_event event{};
  event.events = wanted;
  event.data.fd = fd;
  const int how = wanted == 0 ? EPOLL_CTL_DEL : of.registered == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  VERBENA_TRY(detail::from_minus_one(epoll_ctl(epoll_, how, fd, &event), "epoll_ctl"));
  of.registered = wanted;
  return {};
}

Result<> epoll_loop::watch(detail::watched& one) {
  if (one.token != 0) return {};  // lasting, and there
  of_fd& of = fds_[one.fd];
  of.all.push_back(&one);
  one.token = 1;
  auto settled = settle(one.fd, of);
  if (!settled) unwatch(one);
  return settled;
}

void epoll_loop::unwatch(detail::watched& one) noexcept {
  if (std::exchange(one.token, 0) == 0) return;
  const auto found = fds_.find(one.fd);
  if (found == fds_.end()) return;
  std::erase(found->second.all, &one);
  // A descriptor that was closed already is not registered any more.
  static_cast<void>(settle(one.fd, found->second));
  if (found->second.all.empty()) fds_.erase(found);
}

void epoll_loop::tell(int fd, unsigned events) {
  const auto found = fds_.find(fd);
  if (found == fds_.end()) return;
  const auto all = found->second.all;  // a notice may take itself out
  for (detail::watched* const one : all)
    if ((events & (static_cast<unsigned>(one->events) | kAlways)) != 0) one->notice();
}

Result<> epoll_loop::wait(timeout at_most) {
  std::array<epoll_event, 64> events;
  timespec time{};
  if (at_most) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*at_most);
    time = {.tv_sec = seconds.count(), .tv_nsec = (*at_most - seconds).count()};
  }
  const int n = epoll_pwait2(epoll_, events.data(), static_cast<int>(events.size()),
                             at_most ? &time : nullptr, nullptr);
  if (n < 0 && errno == EINTR) return {};
  VERBENA_TRY(detail::from_minus_one(n, "epoll_pwait2"));
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
    tell(events.at(i).data.fd, events.at(i).events);
  return {};
}

}  // namespace verbena::verbs
