// SPDX-License-Identifier: Apache-2.0
//
// A request has one owner, who answers it.
// expect: deleted function|deleted constructor
#include "compile_fail/rules.h"

void rule(cm::incoming& one) {
#ifdef RIGHT
  const cm::incoming other = std::move(one);
#else
  const cm::incoming other = one;
#endif
}
