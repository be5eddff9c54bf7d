// SPDX-License-Identifier: Apache-2.0
//
// A window of type 2 is bound by a request.
// expect: window_type::one|constraints not satisfied
#include "compile_fail/rules.h"

void rule(memory_window<window_type::two>& window, const queue_pair<rc>& qp,
          const window_range& range) {
#ifdef RIGHT
  (void)qp;
  (void)window.binding<rc>(range);
#else
  (void)window.bind(qp, range);
#endif
}
