// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/time.h"
#include "sim/world.h"

namespace verbena::sim {

/// A seed that failed, and how: the checker's sentence, or the signal that ended its process.
struct FailedSeed {
  std::uint64_t seed = 0;
  std::string failure{};
};

struct CampaignReport {
  std::uint64_t runs = 0;
  std::vector<FailedSeed> failed{};
  RunCounters counters{};
  Duration virtual_time{};
  Duration real_time{};
};

struct CampaignOptions {
  std::uint64_t first = 1;
  std::uint64_t last = 1;
  unsigned jobs = 1;
  bool same_host = false;          ///< see run_seed()
  std::size_t most_failures = 10;  ///< then the rest is not run
  /// Called now and then with the number of runs so far.
  std::function<void(std::uint64_t runs)> progress{};
};

/// Runs many seeds, each job in a process of its own, so that a run that crashes is a failed seed
/// and nothing more.
[[nodiscard]] CampaignReport run_campaign(const CampaignOptions& options);

/// The sum as one line for a person.
[[nodiscard]] std::string summary(const CampaignReport& report);

}  // namespace verbena::sim
