// SPDX-License-Identifier: Apache-2.0
#include "engine/mutants.h"

#ifdef VERBENA_MUTANTS
#include <cstdio>
#include <cstdlib>

namespace verbena::engine {
namespace {

Mutant chosen() {
  const char* name = std::getenv("VERBENA_MUTANT");
  if (name == nullptr) return Mutant::kNone;
  for (std::size_t i = 0; i < kMutantNames.size(); ++i) {
    if (kMutantNames[i] == name) return static_cast<Mutant>(i);
  }
  std::fprintf(stderr, "verbena: VERBENA_MUTANT names no mutant: %s\n", name);
  std::exit(2);
}

}  // namespace

bool mutant(Mutant which) {
  static const Mutant active = chosen();
  return which == active;
}

}  // namespace verbena::engine
#endif
