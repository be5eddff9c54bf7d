// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace verbena {

void check_failed(const char* expression, std::source_location where) {
  std::fprintf(stderr, "verbena: check failed: %s (%s:%u, %s)\n", expression, where.file_name(),
               where.line(), where.function_name());
  std::abort();
}

}  // namespace verbena
