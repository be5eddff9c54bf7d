// SPDX-License-Identifier: Apache-2.0
#include "sim/bottleneck.h"

#include <algorithm>

namespace verbena::sim {
namespace {

constexpr std::uint64_t kBitsAndNanoseconds = 8ULL * 1'000'000'000;
constexpr std::uint32_t kMillion = 1'000'000;
constexpr std::uint8_t kEcnBits = 3;

}  // namespace

std::uint32_t Bottleneck::chance_of_mark(std::uint64_t queue) const {
  if (queue <= plan_.mark_from) return 0;
  if (queue > plan_.mark_all_from) return kMillion;
  return static_cast<std::uint32_t>(plan_.mark_ppm * (queue - plan_.mark_from) /
                                    (plan_.mark_all_from - plan_.mark_from));
}

std::optional<Time> Bottleneck::pass(std::uint64_t bytes, std::uint8_t& traffic_class, Time now,
                                     Random& random) {
  idle_from_ = std::max(idle_from_, now);
  const auto wait = static_cast<std::uint64_t>((idle_from_ - now).count());
  const std::uint64_t queue = wait * plan_.rate / kBitsAndNanoseconds + bytes;
  if (queue > plan_.queue_bytes) {
    ++counters_.dropped;
    return std::nullopt;
  }
  counters_.longest_queue = std::max(counters_.longest_queue, queue);
  ++counters_.passed;
  const bool capable = (traffic_class & kEcnBits) != 0;
  if (capable && random.chance_ppm(chance_of_mark(queue))) {
    traffic_class |= kEcnBits;
    ++counters_.marked;
  }
  idle_from_ += Duration(static_cast<Duration::rep>(bytes * kBitsAndNanoseconds / plan_.rate));
  return idle_from_;
}

}  // namespace verbena::sim
