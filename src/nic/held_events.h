// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "base/time.h"
#include "nic/completion_channel.h"
#include "nic/host.h"

namespace verbena::nic {

/// Events of completion queues that wait for their time, at most one of each queue: what the
/// moderation of a queue holds back.
///
/// Threads: all calls are safe from any thread; its lock lies between those of completion queues
/// and of channels.
class HeldEvents {
 public:
  /// `clock` outlives it.
  explicit HeldEvents(Host& clock) : clock_(clock) {}

  /// The member's event, of which none is held, goes to the channel after `period`, unless it is
  /// taken before. Both stay until then.
  void hold(ChannelMember& member, CompletionChannel& channel, Duration period);
  /// The event is the caller's again; false when it has gone out, or there was none.
  bool take(const ChannelMember& member);
  [[nodiscard]] bool holds(const ChannelMember& member) const;

  /// When release() has something to do; kNever while none is held.
  [[nodiscard]] Time next() const { return next_.load(std::memory_order_relaxed); }
  /// Gives what is due to its channels.
  void release(Time now);

 private:
  struct Held {
    ChannelMember* member;
    CompletionChannel* channel;
    Time due;
  };

  void note_next();

  Host& clock_;
  mutable std::mutex mutex_;
  std::vector<Held> held_;
  std::atomic<Time> next_{kNever};  ///< written under the lock
};

}  // namespace verbena::nic
