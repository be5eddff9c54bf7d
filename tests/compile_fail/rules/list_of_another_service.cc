// SPDX-License-Identifier: Apache-2.0
//
// Nor is a list of them.
// expect: no matching (member )?function .*post
#include "compile_fail/rules.h"

void rule(const queue_pair<uc>& qp, send_list<rc, 4>& of_rc, send_list<uc, 4>& of_uc) {
#ifdef RIGHT
  (void)of_rc;
  (void)qp.post(of_uc);
#else
  (void)of_uc;
  (void)qp.post(of_rc);
#endif
}
