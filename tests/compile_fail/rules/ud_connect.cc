// SPDX-License-Identifier: Apache-2.0
//
// Datagrams have no connection.
// expect: is_connected<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(queue_pair<ud>& qp, const qp_endpoint& end) {
#ifdef RIGHT
  (void)end;
  (void)qp.activate(port{1}, qkey{1});
#else
  (void)qp.connect(end, end);
#endif
}
