// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// Where an id's peer is and how packets get there: RESOLVE_IP, RESOLVE_ADDR, RESOLVE_ROUTE. Both
/// are known at once, and told in events all the same. With the agent's lock held.
namespace verbena::compat::rdma_cm {

[[nodiscard]] Result<void> resolve_ip(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> resolve_address(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> resolve_route(Agent& agent, File& file, const Request& request);

}  // namespace verbena::compat::rdma_cm
