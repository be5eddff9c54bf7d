// SPDX-License-Identifier: Apache-2.0
//
// A handle is moved, not copied.
// expect: deleted function|copy assignment operator is implicitly deleted
#include "compile_fail/rules.h"

void rule(memory_region& one, memory_region& other) {
#ifdef RIGHT
  one = std::move(other);
#else
  one = other;
#endif
}
