// SPDX-License-Identifier: Apache-2.0
#include "bench/support/figure.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace verbena::bench {

namespace {

// The runner takes the same of perftest's samples (bench/runner/figures.py).
constexpr std::array kQuantiles{0.0, 0.01, 0.05, 0.1, 0.2,  0.3,  0.4,   0.5,
                                0.6, 0.7,  0.8,  0.9, 0.95, 0.99, 0.999, 0.9999};

}  // namespace

void give_up(const char* what) {
  fmt::print(stderr, "{}: {}\n", what, std::strerror(errno));
  std::exit(1);
}

void print_figure(double value, std::string_view unit) {
  fmt::print("{{\"value\": {:.6g}, \"unit\": \"{}\"}}\n", value, unit);
  std::fflush(stdout);
}

void print_latencies(std::vector<double>& microseconds) {
  if (microseconds.empty()) {
    errno = ENODATA;
    give_up("latency");
  }
  std::ranges::sort(microseconds);
  const auto at = [&](double quantile) {
    const auto last = static_cast<double>(microseconds.size() - 1);
    return microseconds[static_cast<std::size_t>(std::lround(quantile * last))];
  };
  std::string pairs;
  for (const double quantile : kQuantiles)
    pairs += fmt::format("{}[{}, {:.6g}]", pairs.empty() ? "" : ", ", quantile, at(quantile));
  fmt::print("{{\"value\": {:.6g}, \"unit\": \"us\", \"quantiles\": [{}]}}\n", at(0.5), pairs);
  std::fflush(stdout);
}

void pin_to_processor(unsigned which) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) give_up("sched_getaffinity");
  unsigned seen = 0;
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &allowed)) continue;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    if (seen++ == which) break;
  }
  if (sched_setaffinity(0, sizeof one, &one) != 0) give_up("sched_setaffinity");
}

}  // namespace verbena::bench
