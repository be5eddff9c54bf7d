// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>

#include "verbena/error.h"

namespace verbena::verbs {

/// How long to wait before what has failed is tried again: longer each time, up to a bound, and
/// partly by chance, so that many who failed at once do not come back at once.
struct backoff_policy {
  std::chrono::milliseconds initial{100};     ///< after the first failure
  double factor = 2;                          ///< each wait is so many times the one before
  std::chrono::milliseconds largest{10'000};  ///< no wait is longer
  double jitter = 0.5;  ///< the share of each wait that chance decides, 0 to 1

  /// `invalid_argument` says what does not fit.
  [[nodiscard]] Result<> check() const;
  /// The wait after so many failures in a row. `chance` is 0 up to 1; 0 gives the longest wait.
  [[nodiscard]] std::chrono::milliseconds after(unsigned failures, double chance) const;
};

/// Time and chance for those who try again: the machine's. Programs that live in another time, and
/// tests, derive from it.
///
/// Threads: any.
class retry_environment {
 public:
  /// Of the clock that it stands for.
  using time_point = std::chrono::steady_clock::time_point;
  virtual ~retry_environment() = default;

  /// It never goes back.
  [[nodiscard]] virtual time_point now();
  /// 0 up to 1, from the system's CSPRNG.
  [[nodiscard]] virtual double chance();
  /// Waits until `done`, or it is `until`, or it was asked to stop: whether it is done. `changed`
  /// is notified when that may have become so; the lock is held but while it waits.
  virtual bool wait(std::unique_lock<std::mutex>& lock, std::condition_variable_any& changed,
                    const std::stop_token& stop, std::optional<time_point> until,
                    const std::function<bool()>& done);

  /// One for all.
  [[nodiscard]] static retry_environment& system();
};

}  // namespace verbena::verbs
