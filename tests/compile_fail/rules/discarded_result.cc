// SPDX-License-Identifier: Apache-2.0
//
// What can fail is looked at.
// expect: ignoring return value
#include "compile_fail/rules.h"

void rule(queue_pair<rc>& qp) {
#ifdef RIGHT
  (void)qp.to_error();
#else
  qp.to_error();
#endif
}
