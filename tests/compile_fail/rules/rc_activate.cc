// SPDX-License-Identifier: Apache-2.0
//
// A connection needs a peer.
// expect: is_addressed<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(queue_pair<rc>& qp, const qp_endpoint& end) {
#ifdef RIGHT
  (void)qp.connect(end, end);
#else
  (void)end;
  (void)qp.activate(port{1}, qkey{1});
#endif
}
