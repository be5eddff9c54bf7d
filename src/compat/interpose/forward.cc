// SPDX-License-Identifier: Apache-2.0
// Symbols of libibverbs that are not ours, for users of the second form: the interface to provider
// plug-ins, which works on real devices only. Each goes to the system's library, looked up at its
// first call; entry_points.cc, which the build makes from verbs_symbols.txt, has a slot for each.
#include "compat/interpose/forward.h"

#include <cerrno>
#include <cstdint>

#include "compat/real.h"

namespace verbena::compat::interpose {
namespace {

std::intptr_t not_there() {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

}  // namespace

extern "C" void* verbena_resolve_forward(std::uint64_t slot) {
  void* function = real::symbol(verbena_entry_names[slot]);
  if (function == nullptr) function = reinterpret_cast<void*>(&not_there);
  __atomic_store_n(&verbena_entry_points[slot], function, __ATOMIC_RELEASE);
  return function;
}

}  // namespace verbena::compat::interpose
