// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// Multicast groups: JOIN_IP_MCAST, JOIN_MCAST and LEAVE_MCAST. To join one is to be told its
/// address: the program attaches its queue pair itself. With the agent's lock held.
namespace verbena::compat::rdma_cm {

[[nodiscard]] Result<void> join_ip(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> join(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> leave(Agent& agent, File& file, const Request& request);

/// All groups of an id, whose events are gone.
void forget_multicasts(Agent& agent, const Id& id);

}  // namespace verbena::compat::rdma_cm
