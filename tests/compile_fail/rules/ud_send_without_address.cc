// SPDX-License-Identifier: Apache-2.0
//
// A datagram needs an address.
// expect: no matching (member )?function .*send
#include "compile_fail/rules.h"

void rule(const queue_pair<ud>& qp, const datagram_address& to, const mr_slice& slice) {
#ifdef RIGHT
  (void)qp.send(to, slice);
#else
  (void)to;
  (void)qp.send(slice);
#endif
}
