// SPDX-License-Identifier: Apache-2.0
//
// A refused post is looked at.
// expect: ignoring return value
#include "compile_fail/rules.h"

void rule(const queue_pair<rc>& qp, const mr_slice& slice) {
#ifdef RIGHT
  if (!qp.send(slice)) return;
#else
  qp.send(slice);
#endif
}
