// SPDX-License-Identifier: Apache-2.0
//
// Nor does a datagram of a session go without an address.
// expect: no matching (member )?function .*send
#include "compile_fail/rules.h"

void rule(const queue_pair_ex<ud>& qp, const datagram_address& to) {
#ifdef RIGHT
  (void)qp.start().send(to);
#else
  (void)to;
  (void)qp.start().send();
#endif
}
