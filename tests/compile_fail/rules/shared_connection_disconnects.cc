// SPDX-License-Identifier: Apache-2.0
//
// A connection that is shared as const is not ended by who shares it.
// expect: discards qualifiers|not marked const|function is not marked const
#include "compile_fail/rules.h"

void rule(const cm::connection& shared, cm::connection& mine) {
#ifdef RIGHT
  (void)shared;
  (void)mine.disconnect();
#else
  (void)mine;
  (void)shared.disconnect();
#endif
}
