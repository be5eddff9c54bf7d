// SPDX-License-Identifier: Apache-2.0
//
// A connection's queue pair is reliable.
// expect: could not convert|cannot convert|no viable conversion|no matching
#include "compile_fail/rules.h"

void rule(cm::resolved& one, queue_pair<rc> right, queue_pair<ud> wrong) {
#ifdef RIGHT
  (void)wrong;
  (void)std::move(one).connect(std::move(right));
#else
  (void)right;
  (void)std::move(one).connect(std::move(wrong));
#endif
}
