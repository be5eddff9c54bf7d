// SPDX-License-Identifier: Apache-2.0
//
// A connection has one owner.
// expect: deleted function|deleted constructor
#include "compile_fail/rules.h"

void rule(cm::connection& one) {
#ifdef RIGHT
  const cm::connection other = std::move(one);
#else
  const cm::connection other = one;
#endif
}
