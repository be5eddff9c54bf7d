// SPDX-License-Identifier: Apache-2.0
//
// An error is returned to somebody.
// expect: return-statement with a value|should not return a value
#include "compile_fail/rules.h"

void rule(const context& ctx) {
#ifdef RIGHT
  const auto inner = [&]() -> Result<> {
    const auto pd = VERBENA_TRY(ctx.alloc_pd());
    return {};
  };
  (void)inner();
#else
  const auto pd = VERBENA_TRY(ctx.alloc_pd());
#endif
}
