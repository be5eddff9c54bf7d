// SPDX-License-Identifier: Apache-2.0
//
// Only XRC names a peer's shared receive queue.
// expect: constraints not satisfied
#include "compile_fail/rules.h"

void rule(send_request<rc>& of_rc, send_request<xrc_send>& of_xrc) {
#ifdef RIGHT
  (void)of_rc;
  of_xrc.to_srq(1);
#else
  (void)of_xrc;
  of_rc.to_srq(1);
#endif
}
