// SPDX-License-Identifier: Apache-2.0
//
// A request is answered once: the call takes it.
// expect: discards qualifiers|rvalue ref-qualifier
#include "compile_fail/rules.h"

void rule(cm::incoming& one, queue_pair<rc> qp) {
#ifdef RIGHT
  (void)std::move(one).accept(std::move(qp));
#else
  (void)one.accept(std::move(qp));
#endif
}
