// SPDX-License-Identifier: Apache-2.0
//
// A port is no row of a GID table.
// expect: (cannot|could not) convert .*gid_index_tag|no viable conversion .*gid_index_tag
#include "compile_fail/rules.h"

void rule(const context& ctx) {
#ifdef RIGHT
  (void)ctx.query_gid(port{1}, gid_index{1});
#else
  (void)ctx.query_gid(port{1}, port{1});
#endif
}
