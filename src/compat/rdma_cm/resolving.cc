// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/resolving.h"

#include <rdma/rdma_user_cm.h>

#include "compat/errno.h"
#include "compat/rdma_cm/binding.h"
#include "compat/rdma_cm/events.h"
#include "compat/rdma_cm/foreign.h"
#include "compat/rdma_cm/ports.h"
#include "compat/rdma_cm/route.h"

namespace verbena::compat::rdma_cm {
namespace {

/// Binds the id to the device that leads to its destination.
Result<void> settle(Agent& agent, Id& id, Endpoint destination) {
  if (id.port != nullptr) {
    if (destination.is_any()) destination.address = id.source.address;
    VERBENA_TRY(check_route(id.source, destination));
  } else {
    Source source;
    if (destination.is_any()) {  // this machine
      const std::vector<Port*> ports = VERBENA_TRY(open_all_ports(agent));
      source = {.device = ports.front()->device, .address = ports.front()->device->config.address};
      destination.address = source.address;
    } else {
      source = VERBENA_TRY(find_source(destination));
    }
    if (source.address.is_ipv4() != destination.address.is_ipv4())
      return fail(std::errc::network_unreachable, "the device is of the other IP version");
    Port* const port = VERBENA_TRY(open_port(agent, *source.device));
    const Endpoint before = id.source;
    id.port = port;
    id.source.address = source.address;
    if (auto reserved = reserve_port(agent, id); !reserved) {
      id.port = nullptr;
      id.source = before;
      return reserved;
    }
  }
  id.destination = destination;
  return {};
}

/// Whether resolving makes the id the kernel's. Who has no address yet goes by the source that is
/// named, who has any by the destination.
Result<bool> goes_elsewhere(Agent& agent, const Id& id, const Endpoint& source,
                            const Endpoint& destination) {
  const bool undecided =
      id.state == IdState::kIdle || (id.state == IdState::kAddressBound && id.port == nullptr &&
                                     (id.at_both || id.reservations.empty()));
  if (!undecided || kernel_device(agent) == nullptr) return false;
  if (id.state != IdState::kIdle || source.is_any()) return leads_elsewhere(destination);
  return is_elsewhere(source.address);
}

Result<void> resolve_elsewhere(Agent& agent, Id& id, const Request& request) {
  const bool bound = id.at_both;
  if (!bound) VERBENA_TRY(add_twin(agent, id));
  auto resolving = forward(agent, id, request);
  if (resolving) {
    release_ports(id);
    id.at_both = false;
  } else if (!bound) {
    drop_twin(agent, id);
  }
  return resolving;
}

/// What the kernel returns, and what it tells in an event, differs by what is wrong.
Result<void> resolve(Agent& agent, Id& id, const Request& request, const Endpoint& source,
                     const Endpoint& destination) {
  if (VERBENA_TRY(goes_elsewhere(agent, id, source, destination)))
    return resolve_elsewhere(agent, id, request);
  if (id.state == IdState::kIdle) {
    if (id.space == wire::PortSpace::kIpoib)
      return fail(std::errc::invalid_argument, "there is no IPoIB on Ethernet");
    if (source.family != AF_UNSPEC) {
      VERBENA_TRY(bind_id(agent, id, source));
    } else {
      id.source.family = destination.family;
      id.state = IdState::kAddressBound;
    }
  }
  if (id.source.family != destination.family)
    return fail(std::errc::invalid_argument, "source and destination are of different families");
  if (id.state != IdState::kAddressBound)
    return fail(std::errc::invalid_argument, "the id is not in a state to resolve addresses");
  drop_twin(agent, id);
  if (const auto settled = settle(agent, id, destination); !settled) {
    tell(id, telling({.what = Happened::kAddressError, .status = -to_errno(settled.error())}));
    return {};
  }
  id.state = IdState::kAddressResolved;
  tell(id, telling({.what = Happened::kAddressResolved}));
  return {};
}

Result<Endpoint> optional_endpoint(const void* from, std::size_t size) {
  if (family_of(from) == AF_UNSPEC) return Endpoint{};
  auto endpoint = read_endpoint(from, size);
  if (!endpoint) return fail(std::errc::invalid_argument, "the source is no IP address");
  return endpoint;
}

}  // namespace

Result<void> resolve_ip(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_resolve_ip>());
  Id& id = *VERBENA_TRY(find_id(agent, file, command.id));
  const Endpoint source =
      VERBENA_TRY(optional_endpoint(&command.src_addr, sizeof command.src_addr));
  const auto destination = read_endpoint(&command.dst_addr, sizeof command.dst_addr);
  if (!destination) return fail(std::errc::invalid_argument, "the destination is no IP address");
  return resolve(agent, id, request, source, *destination);
}

Result<void> resolve_address(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_resolve_addr>());
  const auto right = [](const __kernel_sockaddr_storage& address, std::size_t size) {
    return size == size_of_family(family_of(&address));
  };
  if (command.reserved != 0 ||
      (command.src_size != 0 && !right(command.src_addr, command.src_size)) ||
      command.dst_size == 0 || !right(command.dst_addr, command.dst_size))
    return fail(std::errc::invalid_argument);
  Id& id = *VERBENA_TRY(find_id(agent, file, command.id));
  const Endpoint source = command.src_size == 0
                              ? Endpoint{}
                              : VERBENA_TRY(read_endpoint(&command.src_addr, command.src_size));
  return resolve(agent, id, request, source,
                 VERBENA_TRY(read_endpoint(&command.dst_addr, command.dst_size)));
}

Result<void> resolve_route(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_resolve_route>());
  Id& id = *VERBENA_TRY(find_bound_id(agent, file, command.id));
  if (id.state != IdState::kAddressResolved)
    return fail(std::errc::invalid_argument, "the destination's address is not resolved");
  id.route = make_route(id);
  id.has_route = true;
  id.state = IdState::kRouteResolved;
  tell(id, telling({.what = Happened::kRouteResolved}));
  return {};
}

}  // namespace verbena::compat::rdma_cm
