// SPDX-License-Identifier: Apache-2.0
//
// A listener is one thread's at a time.
// expect: discards qualifiers|not marked const|function is not marked const
#include "compile_fail/rules.h"

void rule(const cm::listener& shared, cm::listener& mine) {
#ifdef RIGHT
  (void)shared;
  (void)mine.accept();
#else
  (void)mine;
  (void)shared.accept();
#endif
}
