// SPDX-License-Identifier: Apache-2.0
//
// An identifier is moved, not copied.
// expect: deleted function|implicitly deleted|deleted constructor
#include "compile_fail/rules.h"

void rule(cm::id& one) {
#ifdef RIGHT
  const cm::id other = std::move(one);
#else
  const cm::id other = one;
#endif
}
