// SPDX-License-Identifier: Apache-2.0
//
// A socket joins one group: the call takes it.
// expect: discards qualifiers|rvalue ref-qualifier
#include "compile_fail/rules.h"

void rule(cm::multicast_socket& one, queue_pair<ud> qp, const cm::socket_address& group) {
#ifdef RIGHT
  (void)std::move(one).join(std::move(qp), group);
#else
  (void)one.join(std::move(qp), group);
#endif
}
