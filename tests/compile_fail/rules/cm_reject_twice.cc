// SPDX-License-Identifier: Apache-2.0
//
// A refusal is an answer, too.
// expect: discards qualifiers|rvalue ref-qualifier
#include "compile_fail/rules.h"

void rule(cm::incoming& one) {
#ifdef RIGHT
  (void)std::move(one).reject();
#else
  (void)one.reject();
#endif
}
