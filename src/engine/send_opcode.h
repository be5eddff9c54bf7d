// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/types.h"

namespace verbena::engine {

[[nodiscard]] constexpr bool is_atomic(SendOpcode opcode) {
  return opcode == SendOpcode::kCompareSwap || opcode == SendOpcode::kFetchAdd;
}

/// Whether such a request is done here and nothing leaves.
[[nodiscard]] constexpr bool is_local(SendOpcode opcode) {
  return opcode == SendOpcode::kLocalInvalidate || opcode == SendOpcode::kBindWindow;
}

/// Whether such a request is answered by a READ response without data (Annex A19).
[[nodiscard]] constexpr bool is_placement(SendOpcode opcode) {
  return opcode == SendOpcode::kAtomicWrite || opcode == SendOpcode::kFlush;
}

/// Whether such a request is complete with a response of its own only, which no later
/// acknowledgement replaces.
[[nodiscard]] constexpr bool awaits_response(SendOpcode opcode) {
  return opcode == SendOpcode::kRead || is_placement(opcode) || is_atomic(opcode);
}

}  // namespace verbena::engine
