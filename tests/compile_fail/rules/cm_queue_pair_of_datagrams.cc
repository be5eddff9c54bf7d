// SPDX-License-Identifier: Apache-2.0
//
// A connection makes reliable queue pairs only.
// expect: could not convert|cannot convert|no viable conversion|invalid initialization|no known
// conversion
#include "compile_fail/rules.h"

void rule(cm::resolved& one, const protection_domain& pd, const qp_init_attributes<rc>& right,
          const qp_init_attributes<ud>& wrong) {
#ifdef RIGHT
  (void)wrong;
  (void)one.create_qp(pd, right);
#else
  (void)right;
  (void)one.create_qp(pd, wrong);
#endif
}
