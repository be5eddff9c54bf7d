// SPDX-License-Identifier: Apache-2.0
//
// Who asks for a service of datagrams is told of one that takes them.
// expect: cannot convert|could not convert|invalid initialization|no viable conversion|no matching
#include "compile_fail/rules.h"

void rule(cm::datagram_request& who, const queue_pair<ud>& right, const queue_pair<rc>& wrong) {
#ifdef RIGHT
  (void)wrong;
  (void)std::move(who).accept(right);
#else
  (void)right;
  (void)std::move(who).accept(wrong);
#endif
}
