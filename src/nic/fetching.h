// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace verbena::nic {

/// Whether a receiver takes the middle of long messages out of its peer's memory by itself, in one
/// copy, which the kernel makes, instead of two that the processes make (decision 0014).
enum class Fetching : std::uint8_t {
  kAuto,  ///< where that is faster on this machine
  kNever,
  kAlways,  ///< where the kernel allows it
};

/// Whether this process may read another one's memory: Yama, seccomp and name spaces may be against
/// it.
[[nodiscard]] bool may_fetch_from(pid_t process);

/// Whether one copy by the kernel beats two by two processors here. Measured once a process, in a
/// fraction of a millisecond.
[[nodiscard]] bool fetching_pays();

/// For `link::ShmChannel`: the peer, or 0 when nothing is to be fetched from it. `peer` is 0 when
/// it cannot be seen from here.
[[nodiscard]] pid_t fetched_from(pid_t peer, Fetching wanted);

}  // namespace verbena::nic
