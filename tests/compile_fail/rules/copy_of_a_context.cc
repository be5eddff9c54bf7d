// SPDX-License-Identifier: Apache-2.0
//
// A handle is moved, not copied.
// expect: deleted (function|copy constructor)
#include "compile_fail/rules.h"

void rule(context& ctx) {
#ifdef RIGHT
  const context other = std::move(ctx);
#else
  const context other = ctx;
#endif
}
