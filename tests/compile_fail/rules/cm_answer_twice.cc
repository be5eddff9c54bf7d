// SPDX-License-Identifier: Apache-2.0
//
// Such a question is answered once.
// expect: discards qualifiers|rvalue ref-qualifier
#include "compile_fail/rules.h"

void rule(cm::datagram_request& who, const queue_pair<ud>& qp) {
#ifdef RIGHT
  (void)std::move(who).accept(qp);
#else
  (void)who.accept(qp);
#endif
}
