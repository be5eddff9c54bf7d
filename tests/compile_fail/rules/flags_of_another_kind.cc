// SPDX-License-Identifier: Apache-2.0
//
// A right is no flag of a request.
// expect: (cannot convert|incompatible type) .*access
#include "compile_fail/rules.h"

void rule(posting& how) {
#ifdef RIGHT
  how.flags = send_flags::signaled;
#else
  how.flags = verbena::verbs::access::local_write;
#endif
}
