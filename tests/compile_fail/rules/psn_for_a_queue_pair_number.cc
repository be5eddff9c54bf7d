// SPDX-License-Identifier: Apache-2.0
//
// A PSN is no QPN.
// expect: (cannot|could not) convert .*qp_number_tag|no viable conversion .*qp_number
#include "compile_fail/rules.h"

void rule(const address_handle& ah) {
#ifdef RIGHT
  (void)datagram_address{.ah = ah, .to = qp_number{1}, .key = qkey{1}};
#else
  (void)datagram_address{.ah = ah, .to = psn{1}, .key = qkey{1}};
#endif
}
