// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "base/time.h"
#include "nic/stored_datagram.h"
#include "nic/stray_box.h"

namespace verbena::nic {

/// Management datagrams on their way to other processes. The kernel lets few messages wait in a
/// box, whatever their size (net.unix.max_dgram_qlen, 10), so that those for one process go
/// together, and what finds no room waits here, in order, and is tried again.
///
/// Threads: none; it belongs to a link. Memory: at most kMost datagrams.
class Forwarding {
 public:
  static constexpr std::size_t kMost = 1024;

  /// It goes with the next flush(). Lost when it is too large, or too many wait.
  void add(std::uint8_t slot, const wire::Segment& segment);
  /// Hands on what there is room for.
  void flush(StrayBox& box, Time now);
  /// Fills `segments` with what turned out to be for nobody, and returns how many. The views stay
  /// valid until the next call.
  [[nodiscard]] std::size_t take_back(std::span<wire::Segment> segments);
  [[nodiscard]] bool empty() const { return waiting_.empty() && returned_.empty(); }

 private:
  struct Waiting {
    std::uint8_t slot = 0;
    StoredDatagram datagram;
  };

  std::deque<Waiting> waiting_;
  std::deque<Waiting> returned_;
  std::size_t lent_ = 0;  ///< the first of these are being looked at
};

}  // namespace verbena::nic
