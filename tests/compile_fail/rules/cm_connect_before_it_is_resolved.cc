// SPDX-License-Identifier: Apache-2.0
//
// Who is not resolved yet is not connected.
// expect: has no member named 'connect'|no member named 'connect' in
#include "compile_fail/rules.h"

void rule(cm::connector& one, [[maybe_unused]] const cm::event& happened) {
#ifdef RIGHT
  (void)one.handle(happened);
#else
  (void)one.connect();
#endif
}
