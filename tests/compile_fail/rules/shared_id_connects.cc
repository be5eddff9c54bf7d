// SPDX-License-Identifier: Apache-2.0
//
// An identifier is one thread's at a time: shared as const, it starts nothing.
// expect: discards qualifiers|not marked const|function is not marked const
#include "compile_fail/rules.h"

void rule(const cm::id& shared, cm::id& mine) {
#ifdef RIGHT
  (void)shared;
  (void)mine.connect();
#else
  (void)mine;
  (void)shared.connect();
#endif
}
