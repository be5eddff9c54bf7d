// SPDX-License-Identifier: Apache-2.0
#include "engine/pace.h"

namespace verbena::engine {
namespace {

/// Ethernet, IP, UDP, BTH and ICRC.
constexpr std::uint64_t kHeaders = 62;
/// A host's timers are late by less than this: what was missed before is not made up for.
constexpr Duration kMostLate = std::chrono::microseconds(100);
constexpr std::uint64_t kBitsAndNanoseconds = 8ULL * 1'000'000'000;

Duration time_of(std::uint64_t bytes, std::uint64_t rate) {
  return Duration(static_cast<Duration::rep>(bytes * kBitsAndNanoseconds / rate));
}

std::uint64_t size_of(std::uint32_t payload, std::uint32_t packets) {
  return (payload + kHeaders) * packets;
}

}  // namespace

std::uint32_t PacketClock::admits(std::uint64_t rate, std::uint32_t burst, std::uint32_t payload,
                                  std::uint32_t wanted, Time now) {
  waiting_ = next_ > now;
  if (waiting_) return 0;
  next_ = std::max(next_, now - std::min(kMostLate, time_of(burst, rate)));
  const Duration each = std::max(time_of(size_of(payload, 1), rate), Duration(1));
  return static_cast<std::uint32_t>(std::min<std::int64_t>(wanted, 1 + (now - next_) / each));
}

void PacketClock::sent(std::uint64_t rate, std::uint64_t bytes) { next_ += time_of(bytes, rate); }

void Pace::reset() {
  controller_.reset();
  congested_.reset();
  limit(0, 0);
}

void Pace::limit(std::uint64_t rate, std::uint32_t burst) {
  limit_ = rate;
  burst_ = burst == 0 ? PacketClock::kMostBurst : burst;
  limited_.reset();
}

void Pace::note_limited(std::uint32_t payload, std::uint32_t packets) {
  limited_.sent(limit_, size_of(payload, packets));
}

void Pace::note_congested(std::uint32_t payload, std::uint32_t packets, Time now) {
  const std::uint64_t bytes = size_of(payload, packets);
  congested_.sent(controller_.rate(now), bytes);
  controller_.sent(bytes, now);
}

}  // namespace verbena::engine
