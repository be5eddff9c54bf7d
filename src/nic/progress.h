// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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

/// Whether whoever drives may sleep on the descriptors. In order: of several, the last one counts.
enum class MaySleep : std::uint8_t {
  kYes,      ///< one is readable as soon as something comes
  kBriefly,  ///< a thread is inside and receives by itself; it may not come back
  kNo,       ///< progress() has something to do first
};

/// What a thread found that looked before it sleeps.
struct Looked {
  MaySleep may_sleep = MaySleep::kYes;
  std::uint32_t unwanted = 0;  ///< as in Progress

  Looked& operator+=(const Looked& more) {
    may_sleep = std::max(may_sleep, more.may_sleep);
    unwanted += more.unwanted;
    return *this;
  }
};

}  // namespace verbena::nic
