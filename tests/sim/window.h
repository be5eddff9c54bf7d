// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "sim/arena.h"

namespace verbena::sim {

/// What a window is to stand for.
struct Binding {
  ibv_mr* mr = nullptr;
  std::uint64_t region_address = 0;  ///< of the first byte, in the region's terms
  Range range{};                     ///< where that is; no bytes: the window opens nothing
  unsigned access = 0;
  bool zero_based = false;
  std::uint32_t key = 0;
};

/// A memory window over a part of its owner's zone.
struct Window {
  enum class State : std::uint8_t { kFree, kChanging, kBound };

  ibv_mw* mw = nullptr;
  State state = State::kFree;
  // While it is bound.
  Range range{};
  std::uint64_t address = 0;  ///< what peers call its first byte
  unsigned access = 0;
  std::uint32_t key = 0;
  std::uint32_t users = 0;  ///< requests of the peer through it that are not complete
  // What it was before it was invalidated, bound anew or freed.
  std::uint32_t stale_key = 0;
  std::uint64_t stale_address = 0;
};

}  // namespace verbena::sim
