// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "base/time.h"
#include "nic/fork_ledger.h"
#include "nic/host.h"
#include "nic/poll_state.h"

namespace verbena::nic {

/// Enters a descriptor in an epoll, for input. Of the epolls that watch it so, the kernel wakes one
/// in which somebody sleeps: the first by the order in which they entered it (EPOLLEXCLUSIVE,
/// epoll_ctl(2)). An epoll among the descriptors wakes all. False with errno.
[[nodiscard]] bool watch_exclusively(int epoll, int fd);

/// What threads sleep on that wait for a notifier and drive a NIC by themselves: the notifier and
/// the NIC's descriptors, in the place of whoever entered them later. The thread that is woken by a
/// packet then takes the completion itself, without a second wake-up between the two.
///
/// Threads: any number may wait at once.
class WaitSet {
 public:
  struct Surroundings {
    ForkLedger& ledger;
    /// Makes whoever drives else look: what came may have woken a thread of this set only, which
    /// cannot look itself.
    std::function<void()> hand_over;
    Time (*clock)();
  };
  /// Null when the kernel refuses.
  [[nodiscard]] static std::unique_ptr<WaitSet> create(const Surroundings& surroundings,
                                                       int notifier,
                                                       std::span<const int> descriptors);
  WaitSet(const WaitSet&) = delete;
  WaitSet& operator=(const WaitSet&) = delete;

  /// As Host::wait(). The thread may be cancelled while it sleeps (pthread_cancel(3)).
  [[nodiscard]] Waited wait(const std::function<bool()>& ready, Notifier& notifier,
                            SelfDriven& driven) const;
  /// Until something can be read, as `state` says meanwhile; false with errno, EINTR after a
  /// signal.
  [[nodiscard]] bool sleep(PollState& state) const;

 private:
  WaitSet(const Surroundings& surroundings, LedgerFd epoll)
      : surroundings_(surroundings), epoll_(std::move(epoll)) {}

  Surroundings surroundings_;
  LedgerFd epoll_;
};

}  // namespace verbena::nic
