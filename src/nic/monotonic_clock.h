// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/time.h"

namespace verbena::nic {

/// The time of CLOCK_MONOTONIC, for who asks with each packet.
///
/// Where the kernel itself counts by the processor's time stamp counter, so does this, without the
/// fence that the C library puts before each reading, and asks the kernel every 50 us: half of the
/// time of a call. Within 100 ns of the kernel's time; a thread may see it go back by as much when
/// it is set. Elsewhere it is the kernel's.
///
/// Threads: any.
[[nodiscard]] Time monotonic_now();

}  // namespace verbena::nic
