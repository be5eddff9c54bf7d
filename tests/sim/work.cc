// SPDX-License-Identifier: Apache-2.0
#include "sim/work.h"

#include <array>

#include "engine/types.h"

namespace verbena::sim {

std::string_view to_string(Misdeed misdeed) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(Misdeed::kMisdeeds)> kNames = {
      "none",
      "unknown key",
      "stale key",
      "beyond the end",
      "before start",
      "wrapping",
      "read-only",
      "write-only",
      "other domain",
      "remote lost",
      "qp forbids",
      "too long",
      "local key",
      "local range",
      "local lost",
      "misaligned",
      "atomic length",
      "no receive",
      "silence",
      "stale window",
      "beyond window",
      "window forbids",
      "other's window",
      "binding",
      "local invalidation",
      "remote invalidation",
      "strange queue",
      "foreign queue",
      "failed queue"};
  return kNames[static_cast<std::size_t>(misdeed)];
}

std::string_view to_string(Kind kind) {
  constexpr std::array<std::string_view, kKinds> kNames = {
      "SEND",     "SEND_IMM",  "WRITE",    "WRITE_IMM", "READ",
      "CMP_SWAP", "FETCH_ADD", "SEND_INV", "BIND_MW",   "LOCAL_INV"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view status_name(ibv_wc_status status) {
  return engine::to_string(static_cast<engine::Status>(status));
}

}  // namespace verbena::sim
