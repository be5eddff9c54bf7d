// SPDX-License-Identifier: Apache-2.0
//
// Who shares a dispatcher as const makes queue pairs with it; its owner runs it.
// expect: discards qualifiers|not marked const|function is not marked const
#include "compile_fail/rules.h"

void rule(const dispatcher& shared, dispatcher& mine) {
#ifdef RIGHT
  (void)shared;
  (void)mine.process();
#else
  (void)mine;
  (void)shared.process();
#endif
}
