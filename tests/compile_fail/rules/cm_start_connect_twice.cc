// SPDX-License-Identifier: Apache-2.0
//
// Likewise without waiting.
// expect: discards qualifiers|rvalue ref-qualifier
#include "compile_fail/rules.h"

void rule(cm::resolved& one, queue_pair<rc> qp) {
#ifdef RIGHT
  (void)std::move(one).start_connect(std::move(qp));
#else
  (void)one.start_connect(std::move(qp));
#endif
}
