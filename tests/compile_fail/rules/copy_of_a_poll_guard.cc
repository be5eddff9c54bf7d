// SPDX-License-Identifier: Apache-2.0
//
// A poll that was started ends once.
// expect: deleted (function|constructor)
#include "compile_fail/rules.h"

void rule(poll_guard& guard) {
#ifdef RIGHT
  const poll_guard& other = guard;
#else
  const poll_guard other = guard;
#endif
  (void)other;
}
