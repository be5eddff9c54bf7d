// SPDX-License-Identifier: Apache-2.0
//
// A datagram has no atomics.
// expect: can_read<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair<ud>& ud_qp, const queue_pair<rc>& qp, const mr_slice& slice,
          const remote_region& there) {
#ifdef RIGHT
  (void)ud_qp;
  (void)qp.fetch_add(slice, there, 1);
#else
  (void)qp;
  (void)ud_qp.fetch_add(slice, there, 1);
#endif
}
