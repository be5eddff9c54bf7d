// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/binding.h"

#include <rdma/rdma_user_cm.h>

#include <utility>

#include "base/log.h"
#include "compat/rdma_cm/foreign.h"
#include "compat/rdma_cm/ports.h"

namespace verbena::compat::rdma_cm {
namespace {

/// How often another port is tried when one that is free at the first device is not at the next.
constexpr int kTries = 64;

/// Of RDMA's address family, which librdmacm tries to find out whether we know it.
constexpr sa_family_t kFamilyIb = 27;

/// What of an id's address its ports are for: of any address, and of the loopback network's where
/// that names no device, all (as cma.c).
wire::Address reserved_address(const Id& id) {
  return id.port != nullptr ? id.source.address : wire::Address{};
}

cm::Families families(const Id& id) {
  if (id.source.family == AF_INET) return cm::Families::kIpv4;
  return id.family_only.value_or(false) ? cm::Families::kIpv6 : cm::Families::kBoth;
}

void give_back(std::vector<Reservation>& reservations) {
  for (const Reservation& reservation : reservations)
    reservation.port->services->ports().release(reservation.place);
  reservations.clear();
}

/// The same port at all of them; `entry.port` is told when it was any.
Result<std::vector<Reservation>> reserve_at(const std::vector<Port*>& ports, cm::PortEntry& entry) {
  std::vector<Reservation> reservations;
  for (Port* const port : ports) {
    const auto bound = port->services->ports().bind(entry);
    if (!bound) {
      give_back(reservations);
      return std::unexpected(bound.error());
    }
    reservations.push_back({.port = port, .place = bound->place});
    entry.port = bound->port;
  }
  return reservations;
}

Result<void> listen_at(Id& id, Reservation& reservation, std::uint32_t backlog) {
  VERBENA_TRY(reservation.port->services->ports().listen(reservation.place));
  const cm::Listening listening{.service_id = wire::service_id(id.space, id.source.port),
                                .address = reserved_address(id),
                                .families = families(id),
                                .connections = !id.datagrams(),
                                .datagrams = id.datagrams(),
                                .backlog = backlog};
  reservation.listener = VERBENA_TRY(ask(
      *reservation.port, [&](cm::Manager& manager, Time) { return manager.listen(listening); }));
  reservation.port->listeners[reservation.listener] = &id;
  return {};
}

void stop_listening(Reservation& reservation) {
  const cm::ListenerId listener = std::exchange(reservation.listener, 0);
  if (listener == 0) return;
  reservation.port->listeners.erase(listener);
  ask(*reservation.port,
      [&](cm::Manager& manager, Time now) { manager.stop_listening(listener, now); });
}

/// Whether it is for want of a port, as cma.c says that.
bool has_no_port(const Result<void>& bound) {
  return !bound && (bound.error().condition == std::errc::address_in_use ||
                    bound.error().condition == std::errc::address_not_available);
}

/// Without the kernel the id is still good for our devices.
void do_without_twin(Agent& agent, Id& id, const Error& error) {
  log(LogLevel::kInfo, "rdma_cm: the kernel's devices are left out: {}", error.message);
  drop_twin(agent, id);
}

/// At the kernel's devices too, when that is possible; an error when it has the port already.
Result<void> listen_beside(Agent& agent, Id& id, std::uint32_t backlog) {
  auto listening = listen_twin(agent, id, backlog);
  if (has_no_port(listening)) {
    for (Reservation& begun : id.reservations) stop_listening(begun);
    id.state = IdState::kAddressBound;
    return listening;
  }
  if (!listening) do_without_twin(agent, id, listening.error());
  return {};
}

/// The port that the id has at our devices, at the kernel's too, with the same exceptions.
Result<void> bind_beside(Agent& agent, Id& id) {
  if (kernel_device(agent) == nullptr) return {};
  auto bound = add_twin(agent, id);
  if (bound) bound = bind_twin(agent, id, id.source);
  id.at_both = bound.has_value();
  if (has_no_port(bound)) {
    drop_twin(agent, id);
    release_ports(id);
    id.source = id.destination = {};
    id.state = IdState::kIdle;
    return bound;
  }
  if (!bound) do_without_twin(agent, id, bound.error());
  return {};
}

Result<void> bind_elsewhere(Agent& agent, Id& id, const Endpoint& source) {
  VERBENA_TRY(add_twin(agent, id));
  auto bound = bind_twin(agent, id, source);
  if (!bound) drop_twin(agent, id);
  return bound;
}

Result<void> listen_id(Agent& agent, Id& id, std::uint32_t backlog) {
  if (id.state == IdState::kIdle) VERBENA_TRY(bind_id(agent, id, {.family = AF_INET}));
  if (id.state != IdState::kAddressBound)
    return fail(std::errc::invalid_argument, "the id is not bound to an address");
  VERBENA_TRY(reserve_port(agent, id));
  for (Reservation& reservation : id.reservations) {
    if (auto listening = listen_at(id, reservation, backlog); !listening) {
      // What it got so far counts as listening: it gets its ports anew, now or when it listens
      // again.
      release_ports(id);
      static_cast<void>(reserve_port(agent, id));
      return listening;
    }
  }
  id.state = IdState::kListen;
  set_backlog(id, backlog);
  return id.at_both ? listen_beside(agent, id, backlog) : Result<void>{};
}

Result<void> bind_here(Agent& agent, Id& id, const Endpoint& source) {
  if (id.space == wire::PortSpace::kIpoib)
    return fail(std::errc::invalid_argument, "there is no IPoIB on Ethernet");
  if (source.address.is_link_local() && source.scope == 0)
    return fail(std::errc::invalid_argument, "a link-local address needs a scope");
  Device* device = nullptr;
  if (!source.is_any()) {
    device = source.address.is_loopback() ? VERBENA_TRY(find_device_at(source.address))
                                          : VERBENA_TRY(device_at(source.address));
  }
  id.port = device != nullptr ? VERBENA_TRY(open_port(agent, *device)) : nullptr;
  id.source = source;
  if (auto reserved = reserve_port(agent, id); !reserved) {
    id.port = nullptr;
    id.source = {};
    return reserved;
  }
  id.destination.family = source.family;
  id.state = IdState::kAddressBound;
  return {};
}

}  // namespace

Result<void> bind_id(Agent& agent, Id& id, const Endpoint& source) {
  if (id.state != IdState::kIdle) return fail(std::errc::invalid_argument, "the id has an address");
  if (VERBENA_TRY(is_elsewhere(source.address)) && kernel_device(agent) != nullptr)
    return bind_elsewhere(agent, id, source);
  if (!source.is_any()) return bind_here(agent, id, source);
  Result<void> bound;
  for (int tries = 0; tries < kTries; ++tries) {
    VERBENA_TRY(bind_here(agent, id, source));
    bound = bind_beside(agent, id);
    if (bound || source.port != 0) break;
  }
  return bound;
}

void set_backlog(Id& id, std::uint32_t asked) {
  id.backlog = asked == 0 || asked > cm::kMaxBacklog ? cm::kMaxBacklog : asked;
}

Result<void> reserve_port(Agent& agent, Id& id) {
  if (!id.reservations.empty()) return {};
  const std::vector<Port*> ports =
      id.port != nullptr ? std::vector{id.port} : VERBENA_TRY(open_all_ports(agent));
  Result<std::vector<Reservation>> reserved = fail(std::errc::address_not_available);
  for (int tries = 0; tries < kTries && !reserved; ++tries) {
    cm::PortEntry entry{.space = static_cast<std::uint16_t>(id.space),
                        .port = id.source.port,
                        .address = reserved_address(id),
                        .families = families(id),
                        .reuse = id.reuse_address};
    reserved = reserve_at(ports, entry);
    if (reserved) {
      id.source.port = entry.port;
      id.reservations = *std::move(reserved);
      return {};
    }
    if (id.source.port != 0 || ports.size() == 1) break;
  }
  return std::unexpected(reserved.error());
}

void release_ports(Id& id) {
  for (Reservation& reservation : id.reservations) stop_listening(reservation);
  give_back(id.reservations);
}

Result<void> bind_ip(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_bind_ip>());
  const auto source = read_endpoint(&command.addr, sizeof command.addr);
  if (!source) return fail(std::errc::invalid_argument, "that is no IP address");
  return bind_id(agent, *VERBENA_TRY(find_id(agent, file, command.id)), *source);
}

Result<void> bind(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_bind>());
  const sa_family_t family = family_of(&command.addr);
  // With it librdmacm would leave addresses of ours to its own translation.
  if (family == kFamilyIb) return fail(std::errc::invalid_argument, "addresses are IP's here");
  if (command.reserved != 0 || command.addr_size == 0 ||
      command.addr_size != size_of_family(family))
    return fail(std::errc::invalid_argument);
  Id& id = *VERBENA_TRY(find_id(agent, file, command.id));
  return bind_id(agent, id, VERBENA_TRY(read_endpoint(&command.addr, command.addr_size)));
}

Result<void> listen(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_listen>());
  Id& id = *VERBENA_TRY(find_id(agent, file, command.id));
  // A negative number is a large one, and as many as may be then.
  return listen_id(agent, id, command.backlog > cm::kMaxBacklog ? 0 : command.backlog);
}

}  // namespace verbena::compat::rdma_cm
