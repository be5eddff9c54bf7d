// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/sys.h"

namespace verbena::link {

/// Whether nobody has the other end of a channel's bell (`link/shm.h`): its process is gone.
[[nodiscard]] inline bool has_hung_up(int bell) {
  pollfd poll{.fd = bell, .events = 0, .revents = 0};
  constexpr timespec kNoTime{.tv_sec = 0, .tv_nsec = 0};
  return sys::ppoll(&poll, 1, &kNoTime) != 0;
}

}  // namespace verbena::link
