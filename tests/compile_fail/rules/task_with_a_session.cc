// SPDX-License-Identifier: Apache-2.0
//
// Nor can it be handed to a task.
// expect: no type named .type. in|deleted|static assertion|no matching function
#include "compile_fail/rules.h"

void rule(const queue_pair_ex<rc>& qp) {
#ifdef RIGHT
  auto other = std::async([&qp] { (void)qp.start().complete(); });
#else
  auto session = qp.start();
  auto other = std::async([](auto of) { (void)of.complete(); }, std::move(session));
#endif
}
