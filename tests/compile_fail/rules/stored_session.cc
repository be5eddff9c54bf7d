// SPDX-License-Identifier: Apache-2.0
//
// Nor be kept for later.
// expect: deleted|no matching function for call to|no matching constructor
#include "compile_fail/rules.h"

void rule(const queue_pair_ex<rc>& qp) {
#ifdef RIGHT
  auto session = qp.start();
  wr_session<rc>* seen = &session;
  (void)seen->complete();
#else
  auto session = qp.start();
  std::optional<wr_session<rc>> kept(std::move(session));
#endif
}
