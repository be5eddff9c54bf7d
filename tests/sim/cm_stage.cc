// SPDX-License-Identifier: Apache-2.0
#include "sim/cm_stage.h"

#include <array>
#include <cstddef>

namespace verbena::sim {

using cm::EventKind;

std::string_view name_of(EventKind kind) {
  constexpr std::array<std::string_view, cm::kEventKinds> kNames{
      "requested",         "replied",       "established",  "rejected",
      "unreachable",       "disconnecting", "disconnected", "timewait over",
      "resolve requested", "resolved",      "unresolved"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<Stage> after(Stage stage, EventKind kind) {
  using enum Stage;
  switch (kind) {
    case EventKind::kRequested:
      return stage == kNone || stage == kGone ? std::optional(kAsked) : std::nullopt;
    case EventKind::kReplied: return stage == kAsks ? std::optional(kReplied) : std::nullopt;
    case EventKind::kEstablished: return stage == kAccepts ? std::optional(kUp) : std::nullopt;
    case EventKind::kUnreachable:
      return stage == kAsks || stage == kAccepts ? std::optional(kGone) : std::nullopt;
    case EventKind::kRejected:
      if (stage == kAsks || stage == kAsked || stage == kReplied || stage == kAccepts) return kGone;
      return stage == kUp || stage == kEnds ? std::optional(kOver) : std::nullopt;
    case EventKind::kDisconnecting:
      return stage == kReplied || stage == kAccepts || stage == kUp ? std::optional(kEnded)
                                                                    : std::nullopt;
    case EventKind::kDisconnected:
      // Of its own accord when the peer's queue pair begins anew.
      return stage == kEnds || stage == kUp ? std::optional(kOver) : std::nullopt;
    case EventKind::kTimewaitOver: return stage == kOver ? std::optional(kGone) : std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace verbena::sim
