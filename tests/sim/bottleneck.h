// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/random.h"
#include "base/time.h"
#include "wire/address.h"

namespace verbena::sim {

/// A switch's port: a line with a queue before it, which marks as RED does for DCQCN (Zhu et al.,
/// SIGCOMM 2015, section 3.1, "CP algorithm") and drops what does not fit.
struct BottleneckPlan {
  std::uint64_t rate = 10'000'000'000;      ///< bits a second
  std::uint32_t queue_bytes = 256 << 10;    ///< beyond this it drops
  std::uint32_t mark_from = 5 << 10;        ///< Kmin: below it nothing is marked,
  std::uint32_t mark_all_from = 100 << 10;  ///< Kmax: above it everything,
  std::uint32_t mark_ppm = 200'000;         ///< Pmax: in between up to so many of a million
};

struct BottleneckCounters {
  std::uint64_t passed = 0;
  std::uint64_t marked = 0;
  std::uint64_t dropped = 0;
  std::uint64_t longest_queue = 0;  ///< bytes
};

class Bottleneck {
 public:
  explicit Bottleneck(const BottleneckPlan& plan) : plan_(plan) {}

  /// When a packet of `bytes` has left the line; nothing when it is dropped. Marks it in its
  /// traffic class when it is ECN-capable.
  [[nodiscard]] std::optional<Time> pass(std::uint64_t bytes, std::uint8_t& traffic_class, Time now,
                                         Random& random);
  [[nodiscard]] const BottleneckCounters& counters() const { return counters_; }
  /// Begins to count anew.
  void clear_counters() { counters_ = {}; }

 private:
  [[nodiscard]] std::uint32_t chance_of_mark(std::uint64_t queue) const;

  BottleneckPlan plan_;
  BottleneckCounters counters_{};
  Time idle_from_{};  ///< when all that waits will have left
};

}  // namespace verbena::sim
