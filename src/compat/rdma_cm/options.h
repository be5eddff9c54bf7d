// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// SET_OPTION. With the agent's lock held.
namespace verbena::compat::rdma_cm {

[[nodiscard]] Result<void> set_option(Agent& agent, File& file, const Request& request);

}  // namespace verbena::compat::rdma_cm
