// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compat/objects.h"

namespace verbena::compat {

/// Makes a completion queue in its plain form; what the extended form adds is the caller's to set.
/// `parent` is the parent domain that it is made with, if there is one; `options` are the NIC's.
[[nodiscard]] Result<Cq*> create_cq(ibv_context* context, std::uint32_t entries, void* cookie,
                                    ibv_comp_channel* channel, std::uint32_t vector,
                                    nic::ProtectionDomain* parent = nullptr,
                                    const nic::CqOptions& options = {});

/// The wc_flags of a completion.
[[nodiscard]] unsigned int wc_flags_of(const engine::Completion& completion);

}  // namespace verbena::compat
