// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "verbena/backoff.h"
#include "verbena/stream_connector.h"

namespace verbena::verbs::streams {

/// Which path to a peer is tried next. A path that has failed is avoided for its backoff time; then
/// one attempt at a time is made with it, until one connects.
///
/// Time and chance come in; nothing here waits. Threads: one at a time.
class Paths {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Paths(std::size_t count, path_order order, const backoff_policy& policy)
      : order_(order), policy_(policy), paths_(count) {}

  /// To be ended by one of the calls below.
  struct Attempt {
    std::size_t path = 0;
    std::uint64_t era = 0;
  };
  struct Next {
    std::optional<Attempt> attempt;
    /// Without one: whether somebody tries a path that had failed, so that its end says more.
    bool tried_by_others = false;
    /// Without one: when a path may be tried again by itself.
    std::optional<Time> due;
  };
  [[nodiscard]] Next next(Time now);

  void handle_connected(const Attempt& attempt);
  /// Of several attempts that began before one of them failed only that counts.
  void handle_failed(const Attempt& attempt, Time now, double chance);
  /// It ended for a reason that says nothing of the path.
  void handle_abandoned(const Attempt& attempt);

  [[nodiscard]] std::size_t count() const { return paths_.size(); }
  /// In a row.
  [[nodiscard]] unsigned failures(std::size_t path) const { return paths_[path].failures; }
  /// The past of one that is not avoided.
  [[nodiscard]] Time avoided_until(std::size_t path) const { return paths_[path].avoided_until; }

 private:
  struct Path {
    unsigned failures = 0;
    std::uint64_t era = 0;  ///< grows when what is known of it changes
    Time avoided_until{};
    bool on_trial = false;  ///< by the one attempt that a failed path has
  };
  path_order order_;
  backoff_policy policy_;
  std::vector<Path> paths_;
  std::size_t turn_ = 0;  ///< where to begin, by turns
};

}  // namespace verbena::verbs::streams
