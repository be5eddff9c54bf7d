// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/time.h"
#include "nic/progress.h"

namespace verbena::nic {

/// What a host's runner drives: a NIC, or its part of queue pair 1.
class Driven {
 public:
  Driven() = default;
  Driven(const Driven&) = delete;
  Driven& operator=(const Driven&) = delete;
  virtual ~Driven() = default;
  /// Receives, times out, sends; at most `budget` datagrams.
  virtual Progress progress(Time now, std::uint32_t budget) = 0;
  /// Before the runner sleeps on the descriptors.
  [[nodiscard]] virtual MaySleep may_sleep(Time /*now*/) { return MaySleep::kYes; }
  /// When progress() should be called although nothing comes.
  [[nodiscard]] virtual std::optional<Time> next_timeout() const = 0;
  /// Whose readability asks for progress().
  [[nodiscard]] virtual std::span<const int> descriptors() const = 0;
  /// An application thread does the runner's work: it polls, or waits.
  [[nodiscard]] virtual bool attended(Time now) const = 0;
  /// It waits: what comes wakes it (`WaitSet`).
  [[nodiscard]] virtual bool slept_on() const { return false; }
  /// How often one went to sleep so.
  [[nodiscard]] virtual std::uint32_t sleeps() const { return 0; }
  /// Some thread polled, or woke up, within the last millisecond.
  [[nodiscard]] virtual bool polled_lately(Time now) const = 0;
  /// Some thread was seen within some milliseconds, on the processor that the caller has: it may be
  /// waiting for that.
  [[nodiscard]] virtual bool seen_here(Time /*now*/) { return false; }
  /// Whether a thread that polls all the time found the NIC busy with another one, since the last
  /// call.
  [[nodiscard]] virtual bool turned_away() { return false; }
  /// It cannot work any more.
  virtual void raise_fatal() = 0;
};

}  // namespace verbena::nic
