// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// What ibv_modify_qp is to be told for an id's queue pair, by the state that it goes to:
/// INIT_QP_ATTR. With the agent's lock held.
namespace verbena::compat::rdma_cm {

[[nodiscard]] Result<void> init_qp_attributes(Agent& agent, File& file, const Request& request);

}  // namespace verbena::compat::rdma_cm
