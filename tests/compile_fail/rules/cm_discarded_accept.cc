// SPDX-License-Identifier: Apache-2.0
//
// Whether somebody was accepted is looked at.
// expect: ignoring return(ed)? value|unused-result
#include "compile_fail/rules.h"

void rule(cm::incoming& one, queue_pair<rc> qp) {
#ifdef RIGHT
  (void)std::move(one).accept(std::move(qp));
#else
  std::move(one).accept(std::move(qp));
#endif
}
