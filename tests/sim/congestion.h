// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/time.h"
#include "engine/rate_controller.h"
#include "sim/bottleneck.h"

namespace verbena::sim {

/// Two senders and a receiver behind one bottleneck, and what must come of it.
struct CongestionPlan {
  std::uint64_t seed = 0;
  engine::CongestionConfig control{};
  BottleneckPlan bottleneck{};
  Duration latency{2'000};
  Duration head_start{};         ///< of the first sender
  std::uint32_t early_cnps = 0;  ///< forged, for the second one as it starts: it begins slowly
  bool reads = false;            ///< the receiver READs instead of being written to
  Duration settles{20'000'000};  ///< from the second one's start to where looking begins
  /// Rates swing around the fair one: over this a flow's share is half with a standard deviation of
  /// 0.8 % of the line (2,000 seeds), a sixth of what judge() allows.
  Duration looks{120'000'000};
};

struct CongestionReport {
  std::string failure{};  ///< empty: the run is right
  std::uint64_t hash = 0;
  Duration virtual_time{};
  // While it looked.
  std::array<std::uint64_t, 2> bytes{};  ///< that arrived from each sender, payload
  BottleneckCounters bottleneck{};
  // Before that.
  BottleneckCounters unsettled{};
  std::uint64_t cnps = 0;  ///< in all
};

[[nodiscard]] CongestionPlan make_congestion_plan(std::uint64_t seed);

/// Plays the plan. CNPs that are not as they should be, and requests that fail, are a failure.
[[nodiscard]] CongestionReport run_congestion(const CongestionPlan& plan,
                                              std::FILE* trace_to = nullptr);

/// What is wrong with a report of a run with congestion control, else an empty text: each flow has
/// half of what passed, to a tenth; the line is used; the queue is short and nothing is dropped.
[[nodiscard]] std::string judge(const CongestionPlan& plan, const CongestionReport& report);

}  // namespace verbena::sim
