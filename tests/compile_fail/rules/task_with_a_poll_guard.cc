// SPDX-License-Identifier: Apache-2.0
//
// Nor can it be handed to a task.
// expect: no type named .type. in|deleted|static assertion|no matching function
#include "compile_fail/rules.h"

void rule(const completion_queue_ex& cq) {
#ifdef RIGHT
  auto other = std::async([&cq] { (void)cq.start_poll().next(); });
#else
  poll_guard poll = cq.start_poll();
  auto other = std::async([](auto of) { (void)of.next(); }, std::move(poll));
#endif
}
