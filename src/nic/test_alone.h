// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

#include "nic/memory_map.h"

namespace verbena::nic::testing {

/// Whether this process has one thread. One that was joined is counted a moment longer; those of
/// sanitizers, which nobody can tell from the program's, stay.
inline bool comes_to_be_alone() {
  constexpr int kLooks = 50;
  for (int look = 0; look < kLooks; ++look) {
    if (count_threads() == 1) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace verbena::nic::testing
