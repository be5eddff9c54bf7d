// SPDX-License-Identifier: Apache-2.0
//
// Who was accepted is not refused any more.
// expect: has no member named 'reject'|no member named 'reject' in
#include "compile_fail/rules.h"

void rule(cm::connection& one) {
#ifdef RIGHT
  (void)one.disconnect();
#else
  (void)one.reject();
#endif
}
