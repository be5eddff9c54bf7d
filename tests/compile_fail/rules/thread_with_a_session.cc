// SPDX-License-Identifier: Apache-2.0
//
// A session stays in the thread that began it: it cannot be handed to another one.
// expect: deleted
#include "compile_fail/rules.h"

void rule(const queue_pair_ex<rc>& qp) {
#ifdef RIGHT
  std::jthread other([&qp] {
    auto session = qp.start();
    (void)session.send().complete();
  });
#else
  auto session = qp.start();
  const std::thread other([kept = std::move(session)]() mutable { (void)kept.complete(); });
#endif
}
