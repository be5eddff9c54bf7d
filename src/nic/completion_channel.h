// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "nic/event_ledger.h"
#include "nic/host.h"

namespace verbena::nic {

/// What a completion queue and its channel share: whom an event names and who counts it.
struct ChannelMember {
  void* cookie = nullptr;
  EventLedger* ledger = nullptr;
  std::uint32_t waiting = 0;  ///< its events in the channel (under the channel's lock)
};

/// A completion channel: completion queues put themselves on it when an armed completion comes.
/// Threads: all calls are safe from any thread; the lock is below those of completion queues.
class CompletionChannel {
 public:
  /// More events of one completion queue than this are not kept: a program that armed and was
  /// notified that often without taking one has stopped counting.
  static constexpr std::uint32_t kMaxWaitingPerQueue = 64;

  explicit CompletionChannel(std::unique_ptr<Notifier> notifier) : notifier_(std::move(notifier)) {}

  /// `member` stays until purge().
  void notify(ChannelMember& member);
  /// The cookie of the oldest event, which the queue's ledger then counts as delivered.
  [[nodiscard]] std::optional<void*> take();
  /// Forgets the events of a completion queue that is being destroyed.
  void purge(ChannelMember& member);

  [[nodiscard]] Notifier& notifier() { return *notifier_; }

  std::uint32_t uses = 0;  ///< completion queues on it (under the NIC's object lock)

 private:
  std::unique_ptr<Notifier> notifier_;
  std::mutex mutex_;
  std::deque<ChannelMember*> events_;  ///< as many as the notifier counts
};

}  // namespace verbena::nic
