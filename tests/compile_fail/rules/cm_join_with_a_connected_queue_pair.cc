// SPDX-License-Identifier: Apache-2.0
//
// Groups are of datagrams.
// expect: could not convert|cannot convert|no viable conversion|no matching
#include "compile_fail/rules.h"

void rule(cm::multicast_socket& one, queue_pair<ud> right, queue_pair<rc> wrong,
          const cm::socket_address& group) {
#ifdef RIGHT
  (void)wrong;
  (void)std::move(one).join(std::move(right), group);
#else
  (void)right;
  (void)std::move(one).join(std::move(wrong), group);
#endif
}
