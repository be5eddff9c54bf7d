// SPDX-License-Identifier: Apache-2.0
#include "nic/monotonic_clock.h"

#include <time.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>

namespace verbena::nic {
namespace {

std::int64_t ask_kernel() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Time time_of(std::int64_t nanoseconds) { return Time(std::chrono::nanoseconds(nanoseconds)); }

#ifdef __x86_64__

/// What the kernel counts by is the same on all processors, and goes on while they sleep.
bool kernel_counts_ticks() {
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string source;
  return file >> source && source == "tsc";
}

/// Of a thread: what the kernel's time was at which tick, and for how many ticks that is good.
struct Setting {
  static constexpr std::int64_t kStride = 50'000;        // ns, that one is good for
  static constexpr std::int64_t kBaseline = 10'000'000;  // ns, that a rate is counted over

  std::uint64_t tick = 0;
  std::int64_t time = 0;  // ns
  std::uint64_t good_for = 0;
  double rate = 0;  // ns of a tick; 0: not known
  std::uint64_t rated_tick = 0;
  std::int64_t rated_time = 0;

  std::int64_t set();
};

std::int64_t Setting::set() {
  constexpr std::uint64_t kUndisturbed = 1000;  // ticks: nobody took the processor away in between
  const std::uint64_t before = __rdtsc();
  const std::int64_t now = ask_kernel();
  const std::uint64_t took = __rdtsc() - before;
  good_for = 0;
  if (took > kUndisturbed) return now;
  tick = before + took / 2;
  time = now;
  // Both go on from where they are when the machine was asleep, or was moved to another: then it is
  // counted anew.
  const bool went_on = rated_time != 0 && tick > rated_tick && now > rated_time;
  if (!went_on) rate = 0;
  if (!went_on || now - rated_time >= kBaseline) {
    if (went_on)
      rate = static_cast<double>(now - rated_time) / static_cast<double>(tick - rated_tick);
    rated_tick = tick;
    rated_time = now;
  }
  if (rate > 0) good_for = static_cast<std::uint64_t>(kStride / rate);
  return now;
}

constinit thread_local Setting setting [[gnu::tls_model("initial-exec")]];

#endif

}  // namespace

Time monotonic_now() {
#ifdef __x86_64__
  const std::uint64_t since = __rdtsc() - setting.tick;
  if (since < setting.good_for) [[likely]]
    return time_of(setting.time +
                   static_cast<std::int64_t>(static_cast<double>(static_cast<std::int64_t>(since)) *
                                             setting.rate));
  static const bool by_ticks = kernel_counts_ticks();
  if (by_ticks) return time_of(setting.set());
#endif
  return time_of(ask_kernel());
}

}  // namespace verbena::nic
