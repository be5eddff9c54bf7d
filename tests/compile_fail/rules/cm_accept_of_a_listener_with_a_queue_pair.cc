// SPDX-License-Identifier: Apache-2.0
//
// A listener gives requests; it is not one.
// expect: no matching function for call to|no matching member function
#include "compile_fail/rules.h"

void rule(cm::listener& one, queue_pair<rc> qp) {
#ifdef RIGHT
  (void)qp;
  (void)one.accept();
#else
  (void)one.accept(std::move(qp));
#endif
}
