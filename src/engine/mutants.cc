// SPDX-License-Identifier: Apache-2.0
#include "engine/mutants.h"

#ifdef VERBENA_MUTANTS
#include "base/mutants.h"

namespace verbena::engine {

bool mutant(Mutant which) {
  static const std::size_t active = chosen_mutant("VERBENA_MUTANT", kMutantNames);
  return static_cast<std::size_t>(which) == active;
}

}  // namespace verbena::engine
#endif
