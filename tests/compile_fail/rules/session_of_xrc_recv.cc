// SPDX-License-Identifier: Apache-2.0
//
// The receiving end of XRC has no sessions.
// expect: can_send<.*evaluated to .?false|no matching member function .*create_qp_ex
#include "compile_fail/rules.h"

void rule(const protection_domain& pd, const completion_queue& cq) {
#ifdef RIGHT
  (void)pd.create_qp_ex<rc>({.send_cq = cq, .recv_cq = cq});
#else
  (void)pd.create_qp_ex<xrc_recv>({.send_cq = cq, .recv_cq = cq});
#endif
}
