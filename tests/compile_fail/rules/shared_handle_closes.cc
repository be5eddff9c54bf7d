// SPDX-License-Identifier: Apache-2.0
//
// Nobody closes what is shared as const under the others.
// expect: discards qualifiers|not marked const|function is not marked const
#include "compile_fail/rules.h"

void rule(const protection_domain& shared, protection_domain& mine) {
#ifdef RIGHT
  (void)shared;
  (void)mine.close();
#else
  (void)mine;
  (void)shared.close();
#endif
}
