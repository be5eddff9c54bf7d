// SPDX-License-Identifier: Apache-2.0
//
// Nor does a session of an unreliable connection READ.
// expect: has.*read.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair_ex<uc>& qp, const remote_region& there) {
#ifdef RIGHT
  (void)qp.start().write(there);
#else
  (void)qp.start().read(there);
#endif
}
