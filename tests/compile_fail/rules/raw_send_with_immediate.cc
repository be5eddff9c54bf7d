// SPDX-License-Identifier: Apache-2.0
//
// A raw packet has no immediate.
// expect: can_write<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair<raw_packet>& qp, const mr_slice& slice) {
#ifdef RIGHT
  (void)qp.send(slice);
#else
  (void)qp.send_with_immediate(slice, 1);
#endif
}
