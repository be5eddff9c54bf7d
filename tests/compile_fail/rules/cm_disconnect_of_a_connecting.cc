// SPDX-License-Identifier: Apache-2.0
//
// Likewise while it is asked for: destroying it ends that.
// expect: has no member named 'disconnect'|no member named 'disconnect' in
#include "compile_fail/rules.h"

void rule(cm::connecting& one, cm::connection& connected) {
#ifdef RIGHT
  (void)one;
  (void)connected.disconnect();
#else
  (void)connected;
  (void)one.disconnect();
#endif
}
