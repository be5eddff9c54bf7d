// SPDX-License-Identifier: Apache-2.0
#include "verbena/backoff.h"

#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace verbena::verbs {

Result<> backoff_policy::check() const {
  const auto refused = [](const char* what) {
    return fail(std::errc::invalid_argument, "backoff_policy", what);
  };
  if (initial.count() < 0) return refused("initial is negative");
  if (largest < initial) return refused("largest is below initial");
  if (!(factor >= 1) || !std::isfinite(factor)) return refused("factor is below 1, or no number");
  if (!(jitter >= 0 && jitter <= 1)) return refused("jitter is not within 0 and 1");
  return {};
}

std::chrono::milliseconds backoff_policy::after(unsigned failures, double chance) const {
  if (failures == 0) return std::chrono::milliseconds(0);
  const auto most = static_cast<double>(largest.count());
  const double grown = static_cast<double>(initial.count()) * std::pow(factor, failures - 1);
  // What has grown beyond all bounds is no more than the largest, either.
  const double wait = std::min(grown, most) * (1 - jitter * std::clamp(chance, 0.0, 1.0));
  return std::chrono::milliseconds(std::llround(wait));
}

retry_environment::time_point retry_environment::now() { return std::chrono::steady_clock::now(); }

double retry_environment::chance() {
  std::uint32_t value = 0;
  // Without chance the waits are the longest.
  if (getrandom(&value, sizeof value, 0) != sizeof value) return 0;
  return std::ldexp(static_cast<double>(value), -32);
}

bool retry_environment::wait(std::unique_lock<std::mutex>& lock,
                             std::condition_variable_any& changed, const std::stop_token& stop,
                             std::optional<time_point> until, const std::function<bool()>& done) {
  return until ? changed.wait_until(lock, stop, *until, done) : changed.wait(lock, stop, done);
}

retry_environment& retry_environment::system() {
  static retry_environment one;
  return one;
}

}  // namespace verbena::verbs
