// SPDX-License-Identifier: Apache-2.0
#include "cm/mutants.h"

#ifdef VERBENA_MUTANTS
#include "base/mutants.h"

namespace verbena::cm {

bool mutant(Mutant which) {
  static const std::size_t active = chosen_mutant("VERBENA_CM_MUTANT", kMutantNames);
  return static_cast<std::size_t>(which) == active;
}

}  // namespace verbena::cm
#endif
