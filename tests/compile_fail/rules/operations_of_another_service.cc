// SPDX-License-Identifier: Apache-2.0
//
// No queue pair is made for operations that its service cannot carry.
// expect: operations_of|constraints? not satisfied|no matching member function .*create_qp_ex
#include "compile_fail/rules.h"

void rule(const protection_domain& pd, const completion_queue& cq) {
#ifdef RIGHT
  (void)pd.create_qp_ex<ud, send_ops::send>({.send_cq = cq, .recv_cq = cq});
#else
  (void)pd.create_qp_ex<ud, send_ops::write>({.send_cq = cq, .recv_cq = cq});
#endif
}
