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

}  // namespace verbena::verbs
