// SPDX-License-Identifier: Apache-2.0
//
// A region that is shared as const keeps its rights.
// expect: discards qualifiers|not marked const|function is not marked const
#include "compile_fail/rules.h"

void rule(const memory_region& shared, memory_region& mine) {
#ifdef RIGHT
  (void)shared;
  (void)mine.change_access(access::local_write);
#else
  (void)mine;
  (void)shared.change_access(access::local_write);
#endif
}
