// SPDX-License-Identifier: Apache-2.0
//
// A handle comes from the call that makes it: it has no empty beginning.
// expect: no matching (function|constructor)
#include "compile_fail/rules.h"

void rule(const context& ctx) {
#ifdef RIGHT
  const auto pd = ctx.alloc_pd();
#else
  (void)ctx;
  const protection_domain pd;
#endif
}
