// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// Ids at the kernel's own device. Where an id gets an address that is not ours, it gets a twin
/// there, and what the program asks of it from then on goes to the twin (`is_foreign()`). Who
/// listens at any address does so at both, and decides for one when it resolves an address.
///
/// One opening of the kernel's device serves all of ours, so that a twin stays where it is when its
/// id changes from one opening to another. The kernel knows ids and groups by our numbers, which it
/// puts into events; those are queued with ours, and counted when the program takes them.
///
/// With the agent's lock held, which some commands keep while the kernel waits for its own threads.
namespace verbena::compat::rdma_cm {

/// Null where the kernel has no such device, or it may not be opened.
[[nodiscard]] KernelDevice* kernel_device(Agent& agent);

/// The id that a command is about, when it is the kernel's to answer; else null.
[[nodiscard]] Id* foreign_id(const Agent& agent, const File& file, const Request& request);
/// Writes the command to the id's twin. The kernel answers to where the program says.
[[nodiscard]] Result<void> forward(Agent& agent, Id& id, const Request& request);

/// Gives an id without an address its twin, with the same options. no_such_device when the kernel
/// has no device.
[[nodiscard]] Result<void> add_twin(Agent& agent, Id& id);
/// Nothing when it has none.
void drop_twin(Agent& agent, Id& id);
[[nodiscard]] Result<void> bind_twin(Agent& agent, const Id& id, const Endpoint& source);
[[nodiscard]] Result<void> listen_twin(Agent& agent, const Id& id, std::uint32_t backlog);
/// Ends a twin's membership, when there is one.
void leave_twin(Agent& agent, const Multicast& multicast);

/// Queues all events that the kernel has for us.
void take_kernel_events(Agent& agent);

}  // namespace verbena::compat::rdma_cm
