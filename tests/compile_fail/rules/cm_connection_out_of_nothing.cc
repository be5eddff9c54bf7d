// SPDX-License-Identifier: Apache-2.0
//
// A connection comes out of the phases before it.
// expect: private within this context|no matching function for call to|no matching constructor
#include "compile_fail/rules.h"

void rule(cm::connecting& one, const cm::event& happened) {
#ifdef RIGHT
  auto made = one.handle(happened);
  (void)made;
#else
  (void)happened;
  const cm::connection made;
#endif
}
