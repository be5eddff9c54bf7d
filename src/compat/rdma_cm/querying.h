// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// What an id is, told: QUERY_ROUTE and QUERY. With the agent's lock held.
namespace verbena::compat::rdma_cm {

[[nodiscard]] Result<void> query_route(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> query(Agent& agent, File& file, const Request& request);

}  // namespace verbena::compat::rdma_cm
