// SPDX-License-Identifier: Apache-2.0
//
// A poll that was started ends where it began.
// expect: deleted
#include "compile_fail/rules.h"

void rule(const completion_queue_ex& cq) {
#ifdef RIGHT
  poll_guard poll = cq.start_poll();
  poll_guard& other = poll;
  (void)other.next();
#else
  poll_guard poll = cq.start_poll();
  poll_guard other = std::move(poll);
#endif
}
