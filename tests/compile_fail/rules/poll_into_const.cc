// SPDX-License-Identifier: Apache-2.0
//
// A poll writes.
// expect: no matching function for call|no matching member function
#include "compile_fail/rules.h"

void rule(const completion_queue& cq, std::span<const work_completion> seen,
          std::span<work_completion> room) {
#ifdef RIGHT
  (void)seen;
  (void)cq.poll(room);
#else
  (void)room;
  (void)cq.poll(seen);
#endif
}
