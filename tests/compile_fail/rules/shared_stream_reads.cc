// SPDX-License-Identifier: Apache-2.0
//
// A half of a stream is one thread's at a time.
// expect: discards qualifiers|not marked const|function is not marked const
#include "compile_fail/rules.h"

void rule(const stream& shared, stream& mine) {
#ifdef RIGHT
  (void)shared;
  (void)mine.read_some({});
#else
  (void)mine;
  (void)shared.read_some({});
#endif
}
