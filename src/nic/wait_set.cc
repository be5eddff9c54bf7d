// SPDX-License-Identifier: Apache-2.0
#include "nic/wait_set.h"

#include <utility>

#include "nic/nic.h"

namespace verbena::nic {

WaitSet::WaitSet(Surroundings surroundings, int notifier, std::span<const int> descriptors)
    : surroundings_(std::move(surroundings)) {
  fds_.push_back({.fd = notifier, .events = POLLIN, .revents = 0});
  for (const int fd : descriptors) fds_.push_back({.fd = fd, .events = POLLIN, .revents = 0});
}

Waited WaitSet::wait(const std::function<bool()>& ready, SelfDriven& driven) {
  // While the thread sleeps on the descriptors the runner need not look at what comes: unless this
  // one looked at everything since, also where it is cancelled, the runner has to.
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
      interrupted = !sleep_attending(debt.state);
    } else {
      debt.settle();
      interrupted = !sleep(On::kNotifier);
    }
  }
}

bool WaitSet::sleep_attending(PollState& state) {
  struct Asleep {
    PollState& state;
    Time (*clock)();
    ~Asleep() { state.wake_up(clock()); }
  };
  state.fall_asleep();
  const Asleep asleep{.state = state, .clock = surroundings_.clock};
  return sleep(On::kAll);
}

bool WaitSet::sleep(On what) {
  // The C library's call is a cancellation point, ours is none. Unlike epoll_wait(2) it goes on
  // when a stopped process does (signal(7)).
  return ::ppoll(fds_.data(), what == On::kAll ? fds_.size() : 1, nullptr, nullptr) >= 0;
}

}  // namespace verbena::nic
