// SPDX-License-Identifier: Apache-2.0
//
// Nor be kept for later.
// expect: deleted|no matching function for call to|no matching constructor
#include "compile_fail/rules.h"

void rule(const completion_queue_ex& cq) {
#ifdef RIGHT
  poll_guard poll = cq.start_poll();
  poll_guard* seen = &poll;
  (void)seen->next();
#else
  poll_guard poll = cq.start_poll();
  std::optional<poll_guard> kept(std::move(poll));
#endif
}
