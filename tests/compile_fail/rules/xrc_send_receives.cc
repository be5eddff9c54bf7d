// SPDX-License-Identifier: Apache-2.0
//
// The sending end of XRC has no receives.
// expect: can_receive<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair<xrc_send>& sender, const queue_pair<rc>& qp, const mr_slice& slice) {
#ifdef RIGHT
  (void)sender;
  (void)qp.post_recv(slice);
#else
  (void)qp;
  (void)sender.post_recv(slice);
#endif
}
