// SPDX-License-Identifier: Apache-2.0
//
// Unreliable connections have no READ.
// expect: can_read<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair<uc>& qp, const mr_slice& slice, const remote_region& there) {
#ifdef RIGHT
  (void)qp.write(slice, there);
#else
  (void)qp.read(slice, there);
#endif
}
