// SPDX-License-Identifier: Apache-2.0
#include "nic/wait_set.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/sys.h"
#include "nic/nic.h"

namespace verbena::nic {

bool watch_exclusively(int epoll, int fd) {
  epoll_event event{.events = std::uint32_t{EPOLLIN} | EPOLLEXCLUSIVE, .data = {.fd = fd}};
  if (sys::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return true;
  if (errno != EINVAL) return false;
  event.events = EPOLLIN;
  return sys::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

std::unique_ptr<WaitSet> WaitSet::create(const Surroundings& surroundings, int notifier,
                                         std::span<const int> descriptors) {
  LedgerFd epoll(surroundings.ledger, sys::move_high(sys::OwnedFd(sys::epoll_create())));
  if (!epoll) return nullptr;
  epoll_event event{.events = EPOLLIN, .data = {.fd = notifier}};
  if (sys::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, notifier, &event) != 0) return nullptr;
  const bool all =
      std::ranges::all_of(descriptors, [&](int fd) { return watch_exclusively(epoll.get(), fd); });
  return all ? std::unique_ptr<WaitSet>(new WaitSet(surroundings, std::move(epoll))) : nullptr;
}

Waited WaitSet::wait(const std::function<bool()>& ready, Notifier& notifier,
                     SelfDriven& driven) const {
  // Whatever comes while the thread sleeps may wake it alone: unless it looked at everything since,
  // also where it is cancelled, somebody else has to.
  struct Debt {
    const Surroundings& surroundings;
    PollState& state;
    bool owed = false;
    ~Debt() { settle(); }
    void settle() {
      if (!std::exchange(owed, false)) return;
      state.give_up();
      surroundings.hand_over();
    }
  } debt{.surroundings = surroundings_, .state = driven.nic.poll_state()};
  bool interrupted = false;
  for (;;) {
    const bool is_ready = ready();
    if (driven.may_sleep == MaySleep::kYes) debt.owed = false;
    if (driven.may_sleep == MaySleep::kNo) debt.owed = true;
    if (is_ready) return Waited::kReady;
    if (interrupted || surroundings_.ledger.forked()) return Waited::kInterrupted;
    if (driven.may_sleep == MaySleep::kYes) {
      debt.owed = true;
      interrupted = !sleep(debt.state);
    } else {
      debt.settle();
      pollfd poll{.fd = notifier.descriptor(), .events = POLLIN, .revents = 0};
      interrupted = ::ppoll(&poll, 1, nullptr, nullptr) < 0;
    }
  }
}

bool WaitSet::sleep(PollState& state) const {
  struct Asleep {
    PollState& state;
    Time (*clock)();
    ~Asleep() { state.wake_up(clock()); }
  };
  state.fall_asleep();
  const Asleep asleep{.state = state, .clock = surroundings_.clock};
  std::array<epoll_event, 4> events;
  // The C library's call is a cancellation point, ours is none.
  return ::epoll_wait(epoll_.get(), events.data(), events.size(), -1) >= 0;
}

}  // namespace verbena::nic
