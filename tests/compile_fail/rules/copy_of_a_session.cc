// SPDX-License-Identifier: Apache-2.0
//
// A session is posted once.
// expect: deleted (function|constructor|copy constructor)
#include "compile_fail/rules.h"

void rule(wr_session<rc>& session) {
#ifdef RIGHT
  const auto& other = session;
  (void)other;
#else
  const auto other = session;
#endif
}
