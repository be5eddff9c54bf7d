// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/time.h"
#include "sim/plan.h"
#include "verbena/stream_options.h"

namespace verbena::sim {

/// What becomes of the two programs at the ends of a stream.
enum class StreamEnd : std::uint8_t {
  kOrderly,   ///< both write all they have, shut down and read to the end
  kVanishes,  ///< one of them is gone all of a sudden
  kBreaks,    ///< one of them brings its queue pair to ERR
};

/// A stream of the C++ API between two processes, over a network that loses, repeats, reorders and
/// corrupts.
struct StreamPlan {
  std::uint64_t seed = 0;
  StreamEnd end = StreamEnd::kOrderly;
  std::array<verbs::stream_options, 2> options{};
  std::array<std::uint64_t, 2> bytes{};  ///< that each end writes
  std::uint64_t ends_after = 0;          ///< bytes that the end which goes has read
  DisturbancePlan disturbance{};
};

struct StreamReport {
  std::string failure{};  ///< empty: the run is right
  std::uint64_t hash = 0;
  Duration virtual_time{};
  std::array<std::uint64_t, 2> read{};    ///< bytes that each end read
  std::array<std::uint64_t, 2> stalls{};  ///< times that an end waited for its peer to read
  bool told = false;                      ///< the end that stayed was told that its peer is gone
};

[[nodiscard]] StreamPlan make_stream_plan(std::uint64_t seed);

/// Plays the plan. Right is: each end reads what the other wrote, from its beginning and in order,
/// all of it where both end orderly; who is left alone is told, by what it writes and by what it
/// reads, within the retries of its queue pair.
[[nodiscard]] StreamReport run_stream(const StreamPlan& plan, std::FILE* trace_to = nullptr);

}  // namespace verbena::sim
