// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/pool/paths.h"

#include <algorithm>
#include <limits>

namespace verbena::verbs::streams {

Paths::Next Paths::next(Time now) {
  Next next;
  const std::size_t first = order_ == path_order::by_turns ? turn_ : 0;
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const std::size_t index = (first + i) % paths_.size();
    Path& path = paths_[index];
    if (path.failures != 0 && path.on_trial) {
      next.tried_by_others = true;
    } else if (path.failures != 0 && now < path.avoided_until) {
      next.due = next.due ? std::min(*next.due, path.avoided_until) : path.avoided_until;
    } else {
      path.on_trial = path.failures != 0;
      turn_ = (index + 1) % paths_.size();
      next.attempt = Attempt{.path = index, .era = path.era};
      return next;
    }
  }
  return next;
}

void Paths::handle_connected(const Attempt& attempt) {
  Path& path = paths_[attempt.path];
  if (path.failures != 0) ++path.era;
  path.failures = 0;
  path.on_trial = false;
}

void Paths::handle_failed(const Attempt& attempt, Time now, double chance) {
  Path& path = paths_[attempt.path];
  if (path.era != attempt.era) return;
  ++path.era;
  path.on_trial = false;
  if (path.failures != std::numeric_limits<unsigned>::max()) ++path.failures;
  path.avoided_until = now + policy_.after(path.failures, chance);
}

void Paths::handle_abandoned(const Attempt& attempt) {
  Path& path = paths_[attempt.path];
  if (path.era == attempt.era) path.on_trial = false;
}

}  // namespace verbena::verbs::streams
