// SPDX-License-Identifier: Apache-2.0
//
// The receiving end of XRC sends nothing.
// expect: can_send<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(const queue_pair<xrc_recv>& receiver, const queue_pair<xrc_send>& sender,
          const mr_slice& slice) {
#ifdef RIGHT
  (void)receiver;
  (void)sender.send(slice);
#else
  (void)sender;
  (void)receiver.send(slice);
#endif
}
