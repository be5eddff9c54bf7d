// SPDX-License-Identifier: Apache-2.0
//
// Bytes that a stream shows are not written.
// expect: read-only location|cannot assign to return value
#include "compile_fail/rules.h"

void rule(stream& from, memory_region& region) {
#ifdef RIGHT
  (void)from;
  region.bytes()[0] = std::byte{1};
#else
  (void)region;
  (*from.peek())[0] = std::byte{1};
#endif
}
