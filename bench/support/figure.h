// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks' programs have in common: a clock, an end, and how a figure is told.
#pragma once

#include <chrono>
#include <string_view>
#include <vector>

namespace verbena::bench {

using Clock = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Says what failed and errno's sentence on standard error, and ends the process with status 1.
[[noreturn]] void give_up(const char* what);

/// Prints a figure as the one JSON line that the runner reads.
void print_figure(double value, std::string_view unit);

/// The same for latencies in microseconds: their median, and the quantiles of their distribution.
/// Sorts them.
void print_latencies(std::vector<double>& microseconds);

/// Ties the calling thread to the first or the second of the processors that this process may use;
/// where there is only one, to that.
void pin_to_processor(unsigned which);

/// Calls `work` until `seconds` have passed, looking at the clock every `batch` calls. Returns
/// calls a second. A tenth of the time goes before, uncounted.
template <typename Work>
double calls_per_second(double seconds, unsigned batch, Work work) {
  const auto warm_up = Clock::now();
  while (seconds_since(warm_up) < seconds / 10) work();
  const auto start = Clock::now();
  unsigned long calls = 0;
  double elapsed = 0;
  while (elapsed < seconds) {
    for (unsigned i = 0; i < batch; ++i) work();
    calls += batch;
    elapsed = seconds_since(start);
  }
  return static_cast<double>(calls) / elapsed;
}

}  // namespace verbena::bench
