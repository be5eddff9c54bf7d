// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "base/time.h"
#include "nic/fork_ledger.h"
#include "nic/poll_state.h"

namespace verbena::nic {

/// Enters a descriptor in an epoll, for input. Of the epolls that watch it so, the kernel wakes one
/// in which somebody sleeps: the first by the order in which they entered it (EPOLLEXCLUSIVE,
/// epoll_ctl(2)). An epoll among the descriptors wakes all. False with errno.
[[nodiscard]] bool watch_exclusively(int epoll, int fd);

/// What a thread sleeps on that drives a NIC by itself: a notifier, and the NIC's descriptors, in
/// the place of whoever entered them later. The same thread that is woken by a packet then takes
/// the completion, without a second wake-up between the two.
///
/// Whoever slept may have been the only one to be woken, and looks before it does anything else.
///
/// Threads: any number may sleep at once.
class WaitSet {
 public:
  /// Null when the kernel refuses.
  [[nodiscard]] static std::unique_ptr<WaitSet> create(ForkLedger& ledger, int notifier,
                                                       std::span<const int> descriptors);
  WaitSet(const WaitSet&) = delete;
  WaitSet& operator=(const WaitSet&) = delete;

  /// Until something can be read, as `state` says meanwhile; false with errno, EINTR after a
  /// signal. The thread may be cancelled here (pthread_cancel(3)).
  [[nodiscard]] bool sleep(PollState& state, Time (*clock)()) const;

 private:
  explicit WaitSet(LedgerFd epoll) : epoll_(std::move(epoll)) {}
  LedgerFd epoll_;
};

}  // namespace verbena::nic
