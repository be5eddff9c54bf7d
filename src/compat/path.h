// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compat/objects.h"
#include "wire/address.h"

/// Address vectors (ibv_ah_attr) and what they mean on RoCE v2.
namespace verbena::compat {

/// The path that an address vector names on this device. invalid_argument for one without a GRH
/// (RoCE has no other addresses), another port than 1, or a source GID that is not in the table.
///
/// `local_qp` and `remote_qp` spread UDP source ports where the flow label does not: both 0 for an
/// address handle.
[[nodiscard]] Result<wire::Path> to_path(const nic::Nic& nic, const ibv_ah_attr& attr,
                                         std::uint32_t local_qp, std::uint32_t remote_qp);

/// The address vector of a path, as ibv_query_qp reports it.
[[nodiscard]] ibv_ah_attr from_path(const nic::Nic& nic, const wire::Path& path);

}  // namespace verbena::compat
