// SPDX-License-Identifier: Apache-2.0
//
// A session that nobody completes posts nothing.
// expect: ignoring return(ed)? value|nodiscard
#include "compile_fail/rules.h"

void rule(const queue_pair_ex<rc>& qp) {
#ifdef RIGHT
  (void)qp.start().complete();
#else
  qp.start();
#endif
}
