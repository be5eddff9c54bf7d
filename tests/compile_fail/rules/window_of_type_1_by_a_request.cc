// SPDX-License-Identifier: Apache-2.0
//
// A window of type 1 is bound by a call.
// expect: window_type::two|constraints not satisfied
#include "compile_fail/rules.h"

void rule(memory_window<window_type::one>& window, const queue_pair<rc>& qp,
          const window_range& range) {
#ifdef RIGHT
  (void)window.bind(qp, range);
#else
  (void)qp;
  (void)window.binding<rc>(range);
#endif
}
