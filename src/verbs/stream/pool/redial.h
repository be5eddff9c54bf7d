// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "verbena/stream_connector.h"
#include "verbs/stream/pool/paths.h"

namespace verbena::verbs::streams {

/// An endpoint's paths, tried until one connects, by any number of threads that share what they
/// find out. How to connect is the caller's.
class Redial {
 public:
  using Time = retry_environment::time_point;
  /// One attempt by a path, each of its steps within the time-out.
  using Dial = std::function<Result<>(const stream_path& path, std::chrono::milliseconds timeout)>;

  Redial(stream_endpoint to, const reconnect_policy& how);
  [[nodiscard]] static Result<> check(const stream_endpoint& to, const reconnect_policy& how);

  [[nodiscard]] Result<> run(const Dial& dial, std::optional<Time> until,
                             const std::stop_token& stop);
  [[nodiscard]] std::vector<stream_path_state> states();

  [[nodiscard]] std::optional<Time> deadline_of(stream_timeout at_most);

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// What `run` returns; nothing where it is to go on.
  [[nodiscard]] std::optional<Result<>> attempt(Lock& lock, const Paths::Attempt& which,
                                                const Dial& dial, std::optional<Time> until,
                                                const std::stop_token& stop);
  /// Until a path may be tried, or another's attempt has ended.
  void wait(Lock& lock, const Paths::Next& next, std::optional<Time> until,
            const std::stop_token& stop);
  [[nodiscard]] Error gave_up() const;
  [[nodiscard]] std::string what_failed() const;

  const stream_endpoint to_;
  const reconnect_policy how_;
  retry_environment& environment_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  Paths paths_;
  std::vector<std::optional<Error>> last_;  ///< of each path, until it connects
  std::size_t last_failed_ = 0;
  std::uint64_t ended_ = 0;  ///< attempts
};

}  // namespace verbena::verbs::streams
