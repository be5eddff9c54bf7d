// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>

#include "base/result.h"
#include "nic/host.h"

namespace verbena::nic {

/// Counts the events about one object that a program took and acknowledged, so that destroying the
/// object can wait for the rest (ibv_get_cq_event(3), ibv_get_async_event(3)).
/// Threads: all calls are safe from any thread; one thread at a time destroys an object.
class EventLedger {
 public:
  /// The program took an event.
  void deliver();
  /// The program acknowledged `events` of them.
  void acknowledge(std::uint32_t events);
  /// Waits, without locks, until all that were delivered are acknowledged. No event may be
  /// delivered any more. resource_deadlock_would_occur when that cannot happen (simulator).
  [[nodiscard]] Result<void> settle(Host& host);

 private:
  [[nodiscard]] bool settled();

  std::mutex mutex_;
  std::uint64_t delivered_ = 0;
  std::uint64_t acknowledged_ = 0;
  Notifier* waiter_ = nullptr;
};

}  // namespace verbena::nic
