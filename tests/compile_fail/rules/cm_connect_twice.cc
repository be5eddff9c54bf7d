// SPDX-License-Identifier: Apache-2.0
//
// A resolved peer is connected once: the call takes it.
// expect: discards qualifiers|rvalue ref-qualifier
#include "compile_fail/rules.h"

void rule(cm::resolved& one, queue_pair<rc> qp) {
#ifdef RIGHT
  (void)std::move(one).connect(std::move(qp));
#else
  (void)one.connect(std::move(qp));
#endif
}
