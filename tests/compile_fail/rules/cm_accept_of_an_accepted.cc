// SPDX-License-Identifier: Apache-2.0
//
// Who was accepted waits for the connection, and for nothing else.
// expect: has no member named 'accept'|no member named 'accept' in
#include "compile_fail/rules.h"

void rule(cm::connecting& one, const cm::event& happened) {
#ifdef RIGHT
  (void)one.handle(happened);
#else
  (void)happened;
  (void)one.accept(queue_pair<rc>(std::move(one.qp())));
#endif
}
