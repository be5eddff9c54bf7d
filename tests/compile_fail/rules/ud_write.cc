// SPDX-License-Identifier: Apache-2.0
//
// A datagram cannot write into a peer's memory.
// expect: can_write<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair<ud>& ud_qp, const queue_pair<rc>& qp, const mr_slice& slice,
          const remote_region& there) {
#ifdef RIGHT
  (void)ud_qp;
  (void)qp.write(slice, there);
#else
  (void)qp;
  (void)ud_qp.write(slice, there);
#endif
}
