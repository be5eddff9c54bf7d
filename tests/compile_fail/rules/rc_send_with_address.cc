// SPDX-License-Identifier: Apache-2.0
//
// A connection has its peer already.
// expect: no matching (member )?function .*send
#include "compile_fail/rules.h"

void rule(const queue_pair<rc>& qp, const datagram_address& to, const mr_slice& slice) {
#ifdef RIGHT
  (void)to;
  (void)qp.send(slice);
#else
  (void)qp.send(to, slice);
#endif
}
