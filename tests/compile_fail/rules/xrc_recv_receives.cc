// SPDX-License-Identifier: Apache-2.0
//
// The receiving end of XRC takes them from a shared receive queue.
// expect: can_receive<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair<xrc_recv>& receiver, const shared_receive_queue& srq,
          const mr_slice& slice) {
#ifdef RIGHT
  (void)receiver;
  (void)srq.post_recv(slice);
#else
  (void)srq;
  (void)receiver.post_recv(slice);
#endif
}
