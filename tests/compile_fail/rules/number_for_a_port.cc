// SPDX-License-Identifier: Apache-2.0
//
// A plain number is no port: it says what it counts.
// expect: (cannot|could not) convert .*port|no viable conversion .*port
#include "compile_fail/rules.h"

void rule(const context& ctx) {
#ifdef RIGHT
  (void)ctx.query_port(port{1});
#else
  (void)ctx.query_port(1);
#endif
}
