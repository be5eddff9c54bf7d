// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/endpoint.h"
#include "wire/address.h"

/// Which of our devices has an address, and the devices' services, which are opened when they are
/// first needed. With the agent's lock held.
namespace verbena::compat::rdma_cm {

/// The device whose port has that address in its GID table; null when none of ours has.
[[nodiscard]] Result<Device*> find_device_at(const wire::Address& address);
/// The same; no_such_device when the address is this machine's but no device of ours, and
/// address_not_available when it is another machine's.
[[nodiscard]] Result<Device*> device_at(const wire::Address& address);

/// Whether an id with that source is the kernel's business: an address that is neither ours nor
/// any. Of the loopback network all are ours.
[[nodiscard]] Result<bool> is_elsewhere(const wire::Address& source);
/// Whether packets to `destination` leave from an address that is not ours.
[[nodiscard]] Result<bool> leads_elsewhere(const Endpoint& destination);

/// The device's part of queue pair 1, which stays open from then on.
[[nodiscard]] Result<Port*> open_port(Agent& agent, Device& device);
/// All devices', where they can be opened: an error when none can.
[[nodiscard]] Result<std::vector<Port*>> open_all_ports(Agent& agent);

/// Where the source of an id's packets comes to be: a device and one of its addresses.
struct Source {
  Device* device = nullptr;
  wire::Address address{};
};
/// Where packets to `destination` leave, as the kernel routes: host_unreachable,
/// network_unreachable and the like when nowhere; as device_at() when that is at no device of ours.
[[nodiscard]] Result<Source> find_source(const Endpoint& destination);
/// The kernel's opinion of packets from an address of ours.
[[nodiscard]] Result<void> check_route(const Endpoint& source, const Endpoint& destination);

}  // namespace verbena::compat::rdma_cm
