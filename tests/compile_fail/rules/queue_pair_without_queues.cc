// SPDX-License-Identifier: Apache-2.0
//
// A queue pair has queues that completions go to.
// expect: cannot convert .*qp_init_attributes|no matching member function .*create_qp
#include "compile_fail/rules.h"

void rule(const protection_domain& pd, const completion_queue& cq) {
#ifdef RIGHT
  (void)pd.create_qp<rc>({.send_cq = cq, .recv_cq = cq});
#else
  (void)pd.create_qp<rc>({.send_cq = cq});
#endif
}
