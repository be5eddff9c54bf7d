// SPDX-License-Identifier: Apache-2.0
//
// Bytes that were lent to be read are not written.
// expect: read-only location|cannot assign to return value
#include "compile_fail/rules.h"

void rule(std::span<const std::byte> lent, memory_region& region) {
#ifdef RIGHT
  (void)lent;
  region.bytes()[0] = std::byte{1};
#else
  (void)region;
  lent[0] = std::byte{1};
#endif
}
