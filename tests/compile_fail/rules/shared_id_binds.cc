// SPDX-License-Identifier: Apache-2.0
//
// Nor is it bound.
// expect: discards qualifiers|not marked const|function is not marked const
#include "compile_fail/rules.h"

void rule(const cm::id& shared, cm::id& mine) {
#ifdef RIGHT
  (void)shared;
  (void)mine.bind(cm::socket_address::any_ipv4());
#else
  (void)mine;
  (void)shared.bind(cm::socket_address::any_ipv4());
#endif
}
