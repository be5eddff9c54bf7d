// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// Connections, and requests for a datagram service's queue pair: CONNECT, ACCEPT, REJECT,
/// DISCONNECT and NOTIFY. With the agent's lock held.
namespace verbena::compat::rdma_cm {

[[nodiscard]] Result<void> connect(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> accept(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> reject(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> disconnect(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> notify(Agent& agent, File& file, const Request& request);

/// The manager knows the id's connection no more, or never again for the id.
void forget_connection(Id& id);
/// Ends it in order: nobody waits for what becomes of it.
void abandon_connection(Id& id);

}  // namespace verbena::compat::rdma_cm
