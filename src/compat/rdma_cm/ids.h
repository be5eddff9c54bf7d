// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// How ids come, go, and change from one opening to another: CREATE_ID, DESTROY_ID, MIGRATE_ID.
/// With the agent's lock held.
namespace verbena::compat::rdma_cm {

[[nodiscard]] Result<void> create(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> destroy(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> migrate(Agent& agent, File& file, const Request& request);

}  // namespace verbena::compat::rdma_cm
