// SPDX-License-Identifier: Apache-2.0
#include "nic/wait_set.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/sys.h"

namespace verbena::nic {

bool watch_exclusively(int epoll, int fd) {
  epoll_event event{.events = std::uint32_t{EPOLLIN} | EPOLLEXCLUSIVE, .data = {.fd = fd}};
  if (sys::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return true;
  if (errno != EINVAL) return false;
  event.events = EPOLLIN;
  return sys::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

std::unique_ptr<WaitSet> WaitSet::create(ForkLedger& ledger, int notifier,
                                         std::span<const int> descriptors) {
  LedgerFd epoll(ledger, sys::move_high(sys::OwnedFd(sys::epoll_create())));
  if (!epoll) return nullptr;
  epoll_event event{.events = EPOLLIN, .data = {.fd = notifier}};
  if (sys::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, notifier, &event) != 0) return nullptr;
  const bool all =
      std::ranges::all_of(descriptors, [&](int fd) { return watch_exclusively(epoll.get(), fd); });
  return all ? std::unique_ptr<WaitSet>(new WaitSet(std::move(epoll))) : nullptr;
}

bool WaitSet::sleep(PollState& state, Time (*clock)()) const {
  struct Asleep {
    PollState& state;
    Time (*clock)();
    ~Asleep() { state.wake_up(clock()); }
  };
  state.fall_asleep();
  const Asleep asleep{.state = state, .clock = clock};
  std::array<epoll_event, 4> events;
  // The C library's call is a cancellation point, ours is none.
  return ::epoll_wait(epoll_.get(), events.data(), events.size(), -1) >= 0;
}

}  // namespace verbena::nic
