// SPDX-License-Identifier: Apache-2.0
//
// What is not connected is not disconnected.
// expect: has no member named 'disconnect'|no member named 'disconnect' in
#include "compile_fail/rules.h"

void rule(cm::resolved& one, cm::connection& connected) {
#ifdef RIGHT
  (void)one;
  (void)connected.disconnect();
#else
  (void)connected;
  (void)one.disconnect();
#endif
}
