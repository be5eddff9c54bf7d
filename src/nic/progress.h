// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::nic {

/// What a call of progress() did.
struct Progress {
  bool worked = false;          ///< there was something to do
  std::uint32_t datagrams = 0;  ///< that came in
  std::uint32_t unwanted = 0;   ///< of these, what was useful to no queue pair here (`engine::Use`)

  Progress& operator+=(const Progress& more) {
    worked = worked || more.worked;
    datagrams += more.datagrams;
    unwanted += more.unwanted;
    return *this;
  }
};

}  // namespace verbena::nic
