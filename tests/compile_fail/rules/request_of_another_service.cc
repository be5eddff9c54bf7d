// SPDX-License-Identifier: Apache-2.0
//
// A request of one service is not posted to a queue pair of another.
// expect: no matching (member )?function .*post
#include "compile_fail/rules.h"

void rule(const queue_pair<uc>& qp, std::span<const mr_slice> from) {
#ifdef RIGHT
  (void)qp.post(send_request<uc>::send(from));
#else
  (void)qp.post(send_request<rc>::send(from));
#endif
}
