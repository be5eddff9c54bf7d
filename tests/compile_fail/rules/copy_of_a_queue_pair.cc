// SPDX-License-Identifier: Apache-2.0
//
// A handle is moved, not copied.
// expect: deleted (function|copy constructor)
#include "compile_fail/rules.h"

void rule(queue_pair<rc>& qp) {
#ifdef RIGHT
  const queue_pair<rc> other = std::move(qp);
#else
  const queue_pair<rc> other = qp;
#endif
}
