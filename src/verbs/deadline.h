// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace verbena::verbs {

/// The end of a time from `now` on, which may be as long as can be said; a negative one is over.
template <typename Duration>
[[nodiscard]] constexpr std::chrono::steady_clock::time_point deadline_after(
    std::chrono::steady_clock::time_point now, Duration time) {
  const auto most =
      std::chrono::floor<Duration>(std::chrono::steady_clock::time_point::max() - now);
  return now + std::clamp(time, Duration::zero(), most);
}

/// When a time began that is over now; before all else where it is longer than the clock's.
template <typename Duration>
[[nodiscard]] constexpr std::chrono::steady_clock::time_point beginning_of(
    Duration time, std::chrono::steady_clock::time_point now) {
  using Clock = std::chrono::steady_clock;
  const bool longer = time >= std::chrono::floor<Duration>(now.time_since_epoch());
  return longer ? Clock::time_point::min() : now - time;
}

/// Whether such a time, which began then, is over.
template <typename Duration>
[[nodiscard]] constexpr bool is_over(Duration time, std::chrono::steady_clock::time_point since,
                                     std::chrono::steady_clock::time_point now) {
  return now >= deadline_after(since, time);
}

}  // namespace verbena::verbs
