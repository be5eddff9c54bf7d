// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <functional>
#include <span>
#include <vector>

#include "base/time.h"
#include "nic/fork_ledger.h"
#include "nic/host.h"
#include "nic/poll_state.h"

namespace verbena::nic {

/// What a thread sleeps on that waits for a notifier and drives a NIC by itself: the notifier and
/// the NIC's descriptors. The thread that is woken by a packet then takes the completion itself,
/// without a second wake-up between the two; the runner stays away meanwhile (`PollState`).
///
/// Threads: it belongs to the one that waits.
class WaitSet {
 public:
  struct Surroundings {
    const ForkLedger& ledger;
    /// Makes whoever drives else look: this thread does not take in what comes.
    std::function<void()> hand_over;
    Time (*clock)();
  };
  WaitSet(Surroundings surroundings, int notifier, std::span<const int> descriptors);

  /// As Host::wait(). The thread may be cancelled while it sleeps (pthread_cancel(3)).
  [[nodiscard]] Waited wait(const std::function<bool()>& ready, SelfDriven& driven);

 private:
  enum class On : bool { kNotifier, kAll };
  /// Until something can be read; false after a signal handler.
  [[nodiscard]] bool sleep(On what);
  [[nodiscard]] bool sleep_attending(PollState& state);

  Surroundings surroundings_;
  std::vector<pollfd> fds_;  ///< first the notifier's
};

}  // namespace verbena::nic
