// SPDX-License-Identifier: Apache-2.0
//
// Unreliable connections do not invalidate a peer's key.
// expect: can_read<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair<uc>& qp, const mr_slice& slice) {
#ifdef RIGHT
  (void)qp.send_with_immediate(slice, 1);
#else
  (void)qp.send_with_invalidate(slice, 1);
#endif
}
