// SPDX-License-Identifier: Apache-2.0
//
// Flags of two kinds are not joined.
// expect: no match for .operator\||invalid operands to binary expression
#include "compile_fail/rules.h"

void rule(connect_options& options) {
#ifdef RIGHT
  options.rights = verbena::verbs::access::local_write | verbena::verbs::access::remote_read;
#else
  options.rights = verbena::verbs::access::local_write | send_flags::fence;
#endif
}
