// SPDX-License-Identifier: Apache-2.0
//
// A session does what its queue pair was made for, and nothing else.
// expect: has.*read.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair_ex<rc, send_ops::send | send_ops::write>& qp,
          const remote_region& there) {
#ifdef RIGHT
  (void)qp.start().write(there);
#else
  (void)qp.start().read(there);
#endif
}
