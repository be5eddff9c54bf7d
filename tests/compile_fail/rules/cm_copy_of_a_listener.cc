// SPDX-License-Identifier: Apache-2.0
//
// So is a listener.
// expect: deleted function|implicitly deleted|deleted constructor
#include "compile_fail/rules.h"

void rule(cm::listener& one) {
#ifdef RIGHT
  const cm::listener other = std::move(one);
#else
  const cm::listener other = one;
#endif
}
