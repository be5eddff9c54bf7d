// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "cm/event.h"

namespace verbena::sim {

/// How far a side of an attempt is, as its program knows.
enum class Stage : std::uint8_t {
  kNone,     ///< it has not heard of it
  kAsks,     ///< sent the REQ
  kAsked,    ///< has the REQ
  kReplied,  ///< has the REP
  kAccepts,  ///< sent the REP
  kUp,
  kEnds,   ///< sent the DREQ
  kEnded,  ///< has the DREQ
  kOver,   ///< in timewait
  kGone,
  kLetGo,  ///< abandoned, or its process died: hears no more
};

/// Where an event leads a side; nothing when it must not come there.
[[nodiscard]] std::optional<Stage> after(Stage stage, cm::EventKind kind);
[[nodiscard]] std::string_view name_of(cm::EventKind kind);

}  // namespace verbena::sim
