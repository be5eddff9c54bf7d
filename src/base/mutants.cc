// SPDX-License-Identifier: Apache-2.0
#include "base/mutants.h"

#ifdef VERBENA_MUTANTS
#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace verbena {

std::size_t chosen_mutant(const char* variable, std::span<const std::string_view> names) {
  const char* const name = std::getenv(variable);
  if (name == nullptr) return 0;
  const auto found = std::ranges::find(names, std::string_view(name));
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::fprintf(stderr, "verbena: %s names no mutant: %s\n", variable, name);
  std::exit(2);
}

}  // namespace verbena
#endif
