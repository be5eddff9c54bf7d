// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <optional>

#include "base/time.h"
#include "nic/gate.h"

namespace verbena::nic {

/// When a shard must be driven next, between the threads that drive it and the host that sleeps.
///
/// The host must be woken only when it sleeps longer than it may. set() stores the time and then
/// reads what the host was promised; promise() stores the promise and then reads the time again.
/// All four are sequentially consistent, so one of the two sees the other's: either the host
/// returns the new time or the setter wakes it. A later time than before may be seen late: the host
/// then comes back too early.
///
/// `Atomic` as in gate.h.
template <template <typename> typename Atomic>
class BasicAlarm {
 public:
  /// Under the shard's lock; verbena::kNever for no time. True when the host has to be woken.
  [[nodiscard]] bool set(Time time) {
    const Duration::rep next = time.time_since_epoch().count();
    const Duration::rep before = next_.load();
    if (next == before) return false;
    if (next > before) {
      next_.store(next, std::memory_order_release);
      return false;
    }
    next_.store(next);
    if (next >= promised_.load()) return false;
    promised_.store(next);  // one wake-up is enough until the host asks again
    return true;
  }

  /// The host asks before it sleeps; it comes back at `latest` anyhow.
  [[nodiscard]] std::optional<Time> promise(std::optional<Time> latest) {
    const Duration::rep at_latest = latest ? latest->time_since_epoch().count() : kNever;
    Duration::rep next = next_.load();
    for (;;) {  // ends when the time stands still for one look; whoever moves it holds the shard
      promised_.store(std::min(next, at_latest));
      const Duration::rep again = next_.load();
      if (again == next) break;
      next = again;
    }
    if (next == kNever) return std::nullopt;
    return Time(Duration(next));
  }

  [[nodiscard]] bool due(Time now) const { return next_.load() <= now.time_since_epoch().count(); }

 private:
  static constexpr Duration::rep kNever = std::numeric_limits<Duration::rep>::max();

  Atomic<Duration::rep> next_{kNever};
  /// Nothing was promised yet: the host asks before its first sleep.
  Atomic<Duration::rep> promised_{std::numeric_limits<Duration::rep>::min()};
};

using Alarm = BasicAlarm<StandardAtomic>;

}  // namespace verbena::nic
