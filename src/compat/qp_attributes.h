// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compat/objects.h"
#include "engine/qp_state.h"

/// ibv_qp_attr and its mask in the engine's words, both ways.
namespace verbena::compat {

/// A mask without what says nothing about a queue pair of that type and is passed over.
[[nodiscard]] std::uint32_t meaningful(ibv_qp_type type, std::uint32_t mask);

/// Translates what `mask` names. invalid_argument for a value that the device does not have (port,
/// P_Key index, path MTU, depth of READs, address vector); which attributes a transition needs is
/// the engine's business.
[[nodiscard]] Result<engine::QpAttributes> to_engine(const Qp& qp, const ibv_qp_attr& attr,
                                                     std::uint32_t mask);

[[nodiscard]] ibv_qp_attr from_engine(const Qp& qp, const engine::QpAttributes& attributes);

}  // namespace verbena::compat
