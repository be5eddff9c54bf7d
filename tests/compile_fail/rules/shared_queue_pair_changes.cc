// SPDX-License-Identifier: Apache-2.0
//
// Shared as const a queue pair is posted to; its state is its owner's.
// expect: discards qualifiers|not marked const|function is not marked const
#include "compile_fail/rules.h"

void rule(const queue_pair<rc>& shared, queue_pair<rc>& mine) {
#ifdef RIGHT
  (void)shared;
  (void)mine.to_error();
#else
  (void)mine;
  (void)shared.to_error();
#endif
}
