// SPDX-License-Identifier: Apache-2.0
//
// A poll stays in the thread that began it: it cannot be handed to another one.
// expect: deleted
#include "compile_fail/rules.h"

void rule(const completion_queue_ex& cq) {
#ifdef RIGHT
  std::jthread other([&cq] {
    poll_guard poll = cq.start_poll();
    (void)poll.next();
  });
#else
  poll_guard poll = cq.start_poll();
  const std::thread other([kept = std::move(poll)]() mutable { (void)kept.next(); });
#endif
}
