// SPDX-License-Identifier: Apache-2.0
//
// Likewise without waiting.
// expect: discards qualifiers|rvalue ref-qualifier
#include "compile_fail/rules.h"

void rule(cm::incoming& one, queue_pair<rc> qp) {
#ifdef RIGHT
  (void)std::move(one).start_accept(std::move(qp));
#else
  (void)one.start_accept(std::move(qp));
#endif
}
