// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "engine/queue_pair.h"
#include "engine/train_batch.h"

namespace verbena::engine {

/// Destroyed queue pairs that go on acknowledging what they had received (nic.md, "Progress"): a
/// program that got the last message closes at once, and its peer must not fail for a lost
/// acknowledgement. Bounded: the oldest gives way.
class Linger {
 public:
  static constexpr std::size_t kCapacity = 256;
  static constexpr Duration kTime = std::chrono::seconds(2);

  Linger() { entries_.reserve(kCapacity); }

  /// Takes over from a queue pair that is about to go: what it still had to acknowledge is
  /// acknowledged.
  void add(const QueuePair& qp, Time now);
  /// A packet for a queue pair that is gone. True when it was a repetition that is now acknowledged
  /// again.
  bool handle(const wire::Packet& packet, const wire::Segment& segment, Time now);
  [[nodiscard]] bool holds(std::uint32_t qp_number, Time now) const;
  void fill(TrainBatch& batch, Counters& counters);
  /// fill() has something to acknowledge.
  [[nodiscard]] bool pending() const { return pending_; }

 private:
  struct Entry {
    QpType type{};
    std::uint32_t qp_number = 0;
    std::uint32_t destination_qp = 0;
    std::uint32_t expected_psn = 0;
    std::uint32_t msn = 0;
    wire::Path path{};
    Time until{};
    bool acknowledge = false;
  };

  std::vector<Entry> entries_;
  std::size_t next_ = 0;
  bool pending_ = false;
};

}  // namespace verbena::engine
