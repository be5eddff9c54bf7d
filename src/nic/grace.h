// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/time.h"
#include "nic/stored_datagram.h"

namespace verbena::nic {

/// Requests for ports at which nobody listens, for a moment: a program that listens anew, or that
/// begins at once with the one which asks, is seldom quicker than the request, and a refusal is for
/// good.
///
/// Threads: none; it belongs to a link. Memory: at most kMost datagrams.
class Grace {
 public:
  static constexpr Duration kTime = std::chrono::milliseconds(100);
  static constexpr std::size_t kMost = 256;

  /// False when it must be answered now.
  [[nodiscard]] bool add(const wire::Segment& segment, Time now) {
    if (waiting_.size() >= kMost || !StoredDatagram::fits(segment)) return false;
    waiting_.emplace_back(now + kTime, StoredDatagram(segment));
    return true;
  }
  /// The next one whose time is over; its view is valid until the next call.
  [[nodiscard]] std::optional<wire::Segment> take(Time now) {
    if (waiting_.empty() || waiting_.front().first > now) return std::nullopt;
    taken_ = waiting_.front().second;
    waiting_.pop_front();
    return taken_->segment();
  }
  /// When there is something to take; kNever when nothing waits.
  [[nodiscard]] Time next() const { return waiting_.empty() ? kNever : waiting_.front().first; }

 private:
  std::deque<std::pair<Time, StoredDatagram>> waiting_;
  std::optional<StoredDatagram> taken_;
};

}  // namespace verbena::nic
