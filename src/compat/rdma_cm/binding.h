// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// Addresses, devices and ports of ids: BIND_IP, BIND and LISTEN. With the agent's lock held.
namespace verbena::compat::rdma_cm {

[[nodiscard]] Result<void> bind_ip(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> bind(Agent& agent, File& file, const Request& request);
[[nodiscard]] Result<void> listen(Agent& agent, File& file, const Request& request);

/// Gives an idle id its address: bound to the device that has it, ours or the kernel's, or to all,
/// theirs and ours. Its port is the one that it asks for, or any that is free.
[[nodiscard]] Result<void> bind_id(Agent& agent, Id& id, const Endpoint& source);
/// Gets the id's port where it has none yet, at its device or at all.
[[nodiscard]] Result<void> reserve_port(Agent& agent, Id& id);
/// `asked` is what a program says when it listens: 0 is as many as may be.
void set_backlog(Id& id, std::uint32_t asked);
/// Gives back what the id listens for, and its port.
void release_ports(Id& id);

}  // namespace verbena::compat::rdma_cm
