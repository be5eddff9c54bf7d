// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this folder only: a time that passes when somebody waits.

#include <atomic>
#include <functional>
#include <mutex>

#include "verbena/backoff.h"

namespace verbena::verbs::testing {

/// Who waits until a time is there at once; who waits for ever waits in the machine's time.
class FakeEnvironment : public retry_environment {
 public:
  time_point now() override { return start_ + passed_.load(); }
  double chance() override { return 0; }
  bool wait(std::unique_lock<std::mutex>& lock, std::condition_variable_any& changed,
            const std::stop_token& stop, std::optional<time_point> until,
            const std::function<bool()>& done) override {
    if (!until) return retry_environment::wait(lock, changed, stop, until, done);
    if (done() || stop.stop_requested()) return done();
    ++waits;
    if (*until > now()) pass(*until - now());
    lock.unlock();
    if (on_wait) on_wait();
    lock.lock();
    return done();
  }
  void pass(time_point::duration time) { passed_ = passed_.load() + time; }
  [[nodiscard]] time_point::duration passed() const { return passed_; }

  std::function<void()> on_wait;  ///< the world goes on while one waits
  std::atomic<int> waits{0};

 private:
  const time_point start_{std::chrono::hours(1)};
  std::atomic<time_point::duration> passed_{};
};

}  // namespace verbena::verbs::testing
