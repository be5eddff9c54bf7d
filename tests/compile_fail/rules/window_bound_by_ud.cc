// SPDX-License-Identifier: Apache-2.0
//
// Datagrams bind no window.
// expect: can_write<.*evaluated to .?false
#include "compile_fail/rules.h"

void rule(memory_window<window_type::one>& window, const queue_pair<ud>& of_ud,
          const queue_pair<rc>& of_rc, const window_range& range) {
#ifdef RIGHT
  (void)of_ud;
  (void)window.bind(of_rc, range);
#else
  (void)of_rc;
  (void)window.bind(of_ud, range);
#endif
}
