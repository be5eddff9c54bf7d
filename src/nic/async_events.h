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

/// Numbers are those of ibv_event_type.
enum class AsyncKind : std::uint8_t {
  kCqError = 0,
  kQpFatal = 1,
  kQpRequestError = 2,
  kQpAccessError = 3,
  kCommunicationEstablished = 4,
  kSendQueueDrained = 5,
  kDeviceFatal = 8,
  kPortActive = 9,
  kPortError = 10,
  kSrqError = 14,
  kSrqLimitReached = 15,
  kLastWqeReached = 16,
  kGidChange = 18,
};

/// An asynchronous event with the object it is about.
struct AsyncEvent {
  AsyncKind kind{};
  void* cookie =
      nullptr;  ///< of the queue pair, completion or shared receive queue; null for port and device
};

/// The asynchronous events of a NIC that no program has taken yet. An event that already waits in
/// the queue is not queued again, so there are never more than kinds times objects; one of the port
/// moves to the end.
/// Threads: all calls are safe from any thread; no other lock is taken inside but ledgers'.
class AsyncEvents {
 public:
  explicit AsyncEvents(std::unique_ptr<Notifier> notifier) : notifier_(std::move(notifier)) {}

  /// `ledger` is the object's, null for port and device; it outlives the event (see purge()).
  void raise(const AsyncEvent& event, EventLedger* ledger);
  /// The oldest event, which its object's ledger then counts as delivered.
  [[nodiscard]] std::optional<AsyncEvent> take();
  /// Forgets what waits about an object that is being destroyed.
  void purge(const EventLedger& ledger);

  [[nodiscard]] Notifier& notifier() { return *notifier_; }

 private:
  struct Entry {
    AsyncEvent event{};
    EventLedger* ledger = nullptr;
  };

  std::unique_ptr<Notifier> notifier_;
  std::mutex mutex_;
  std::deque<Entry> entries_;  ///< as many as the notifier counts
};

}  // namespace verbena::nic
