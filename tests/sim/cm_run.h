// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/time.h"
#include "wire/cm_message.h"

namespace verbena::sim {

/// Programs that connect to one another through connection managers, over a network that loses,
/// repeats, delays and is cut, while processes die and begin anew.
struct CmPlan {
  std::uint64_t seed = 0;
  std::uint32_t processes = 2;
  std::uint32_t attempts = 40;  ///< connections, and requests for a service's queue pair
  std::uint32_t drop_ppm = 0;   ///< of datagrams, as the next two
  std::uint32_t repeat_ppm = 0;
  std::uint32_t delay_ppm = 0;  ///< by up to two seconds, so that others overtake it
  std::uint32_t restarts = 0;
  std::uint32_t cuts = 0;  ///< of the path between two processes, for up to two minutes
  std::uint32_t patience_ppm =
      0;              ///< programs that think for longer than a peer waits for an answer
  Duration spread{};  ///< within which the attempts begin
};

struct CmReport {
  std::string failure{};  ///< empty: the run is right
  std::uint64_t hash = 0;
  Duration virtual_time{};
  std::uint64_t attempts = 0;
  std::uint64_t connected = 0;  ///< on both sides
  std::uint64_t refused = 0;    ///< by a message that says why
  std::uint64_t unanswered = 0;
  std::uint64_t resolved = 0;  ///< requests for a service's queue pair
  std::uint64_t datagrams = 0;
  std::uint64_t lost = 0;
};

[[nodiscard]] CmPlan make_cm_plan(std::uint64_t seed);

/// Plays the plan until nothing is due any more. Right is: each side is told what happens in an
/// order that makes sense, with the data that the other side gave; who connects ends up connected
/// on both sides or is told why not; at the end nobody keeps anything.
[[nodiscard]] CmReport run_cm(const CmPlan& plan, std::FILE* trace_to = nullptr);

}  // namespace verbena::sim
