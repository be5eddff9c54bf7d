// SPDX-License-Identifier: Apache-2.0
//
// A resolved peer is sent nothing: the queue pair comes with the connection.
// expect: has no member named 'qp'|no member named 'qp' in
#include "compile_fail/rules.h"

void rule(cm::resolved& one, const mr_slice& data, cm::connection& connected) {
#ifdef RIGHT
  (void)one;
  (void)connected.qp().send(data);
#else
  (void)connected;
  (void)one.qp().send(data);
#endif
}
