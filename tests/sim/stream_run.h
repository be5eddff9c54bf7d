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
  kOrderly,  ///< both write all they have, shut down and read to the end
  kKilled,   ///< one of them dies in the middle of something, and its NIC with it
  kBreaks,   ///< one of them brings its queue pair to ERR
  kCut,      ///< both live on, and nothing reaches the other any more
};

/// A stream of the C++ API between two processes, over a network that loses, repeats, reorders and
/// corrupts, or through rings where both are on one machine.
struct StreamPlan {
  std::uint64_t seed = 0;
  StreamEnd end = StreamEnd::kOrderly;
  std::array<verbs::stream_options, 2> options{};
  std::array<std::uint64_t, 2> bytes{};  ///< that each end writes
  std::uint64_t ends_after = 0;          ///< bytes that the second end reads before it comes so
  bool listens = false;                  ///< from then on the first end writes nothing
  std::uint32_t troubles = 0;            ///< that pass: the path is cut, or a process stands still
  DisturbancePlan disturbance{};
  bool same_host = false;
  bool share_memory = false;  ///< and each other's memory, with `same_host`
  bool lends = false;         ///< as Plan::lends
  NetworkPlan network{};
};

struct StreamReport {
  std::string failure{};  ///< empty: the run is right
  std::uint64_t hash = 0;
  Duration virtual_time{};
  std::array<std::uint64_t, 2> read{};    ///< bytes that each end read
  std::array<std::uint64_t, 2> stalls{};  ///< times that an end waited for its peer to read
  std::uint64_t told = 0;                 ///< ends that were told of the stream's failure
  std::uint64_t troubles = 0;             ///< that came and passed
  std::uint64_t by_ring = 0;              ///< packets
};

[[nodiscard]] StreamPlan make_stream_plan(std::uint64_t seed);

/// Plays the plan. Right is: each end reads what the other wrote, from its beginning and in order,
/// all of it where both end orderly; otherwise everyone who is left is told, by what it writes and
/// by what it reads, within the retries of its queue pair.
[[nodiscard]] StreamReport run_stream(const StreamPlan& plan, std::FILE* trace_to = nullptr);

}  // namespace verbena::sim
