// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace verbena {

using Duration = std::chrono::nanoseconds;

/// The house's timeline: nanoseconds since an origin that its owner chooses (the monotonic clock's
/// when live, the run's start in the simulator). It has no now(): time is always a parameter,
/// handed down by a link, a driver or the simulator.
struct Timeline {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Timeline>;
  static constexpr bool is_steady = true;
};

using Time = Timeline::time_point;

/// For what is waited for in vain: later than every other time, so that the earliest of several is
/// their minimum.
inline constexpr Time kNever = Time::max();

}  // namespace verbena
