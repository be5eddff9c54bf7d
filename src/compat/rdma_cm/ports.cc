// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/ports.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/sys.h"
#include "compat/device_table.h"
#include "link/local_address.h"

namespace verbena::compat::rdma_cm {
namespace {

/// RoCE's; any would do, as nothing is sent.
constexpr std::uint16_t kRoutedPort = 4791;

Port* find_port(const Agent& agent, const Device& device) {
  const auto found = std::ranges::find_if(
      agent.ports, [&](const auto& port) { return port->device == &device && !port->removed; });
  return found == agent.ports.end() ? nullptr : found->get();
}

/// The address that the kernel would send from, or what it says against it. `source` may be any.
Result<wire::Address> routed_source(const Endpoint& source, const Endpoint& destination) {
  const auto failed = [] { return fail(static_cast<std::errc>(errno)); };
  const sys::OwnedFd fd(sys::socket(destination.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return failed();
  const auto size = static_cast<socklen_t>(size_of_family(destination.family));
  if (!source.is_any()) {
    Endpoint from = source;
    from.port = 0;
    const sockaddr_storage address = to_sockaddr(from);
    if (sys::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
      return failed();
  }
  Endpoint to = destination;
  to.port = kRoutedPort;
  const sockaddr_storage address = to_sockaddr(to);
  if (sys::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return failed();
  sockaddr_storage own{};
  socklen_t own_size = sizeof own;
  if (sys::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &own_size) != 0)
    return failed();
  return VERBENA_TRY(read_endpoint(&own, sizeof own)).address;
}

bool same_family(const wire::Address& one, const wire::Address& other) {
  return one.is_ipv4() == other.is_ipv4();
}

/// The first device that may send there though no route leads from it: to addresses of the loopback
/// network each of those that are there, to a group any.
Result<Source> source_beside_routes(const wire::Address& destination) {
  for (Device* const device : VERBENA_TRY(devices())) {
    const wire::Address& own = device->config.address;
    if (!same_family(own, destination)) continue;
    if (destination.is_multicast() || (destination.is_loopback() && own.is_loopback()))
      return Source{.device = device, .address = own};
  }
  return fail(std::errc::no_such_device, "no device of ours reaches it");
}

}  // namespace

Result<Device*> find_device_at(const wire::Address& address) {
  const std::span<Device* const> all = VERBENA_TRY(devices());
  for (Device* const device : all)
    if (device->config.address == address) return device;
  for (Device* const device : all) {
    const nic::PortReport report = device->host->port(device->config.address);
    if (nic::index_of(report.state.gids, address)) return device;
  }
  return nullptr;
}

Result<Device*> device_at(const wire::Address& address) {
  if (Device* const device = VERBENA_TRY(find_device_at(address)); device != nullptr) return device;
  if (link::find_local(address))
    return fail(std::errc::no_such_device, "no device of ours has the address");
  return fail(std::errc::address_not_available, "the address is not this machine's");
}

Result<Port*> open_port(Agent& agent, Device& device) {
  if (Port* const port = find_port(agent, device); port != nullptr) return port;
  auto made = std::make_unique<Port>();
  Port* const port = made.get();
  port->device = &device;
  port->services =
      VERBENA_TRY(device.host->open_general_services(device.config, [&agent] { agent.notify(); }));
  port->gids = port->services->port().gids;
  agent.ports.push_back(std::move(made));
  return port;
}

Result<std::vector<Port*>> open_all_ports(Agent& agent) {
  std::vector<Port*> ports;
  Result<Port*> last = fail(std::errc::no_such_device, "there is no device");
  for (Device* const device : VERBENA_TRY(devices())) {
    last = open_port(agent, *device);
    if (last) {
      ports.push_back(*last);
    } else {
      log(LogLevel::kInfo, "rdma_cm: nothing is taken at {}: {}", device->config.name,
          last.error().message);
    }
  }
  if (ports.empty()) return std::unexpected(last.error());
  return ports;
}

Result<Source> find_source(const Endpoint& destination) {
  const auto routed = routed_source({}, destination);
  if (!routed && !destination.address.is_multicast()) return std::unexpected(routed.error());
  if (routed) {
    if (Device* const device = VERBENA_TRY(find_device_at(*routed)); device != nullptr)
      return Source{.device = device, .address = *routed};
  }
  // To an address of this machine the kernel routes from the loopback interface's.
  if (Device* const device = VERBENA_TRY(find_device_at(destination.address)); device != nullptr)
    return Source{.device = device, .address = destination.address};
  if (auto beside = source_beside_routes(destination.address)) return beside;
  if (!routed) return std::unexpected(routed.error());
  return Source{.device = VERBENA_TRY(device_at(*routed)), .address = *routed};
}

Result<bool> is_elsewhere(const wire::Address& source) {
  if (source.is_zero() || source.is_loopback()) return false;
  return VERBENA_TRY(find_device_at(source)) == nullptr;
}

Result<bool> leads_elsewhere(const Endpoint& destination) {
  if (destination.is_any()) return false;  // this machine
  const auto found = find_source(destination);
  return !found && found.error().condition == std::errc::no_such_device;
}

Result<void> check_route(const Endpoint& source, const Endpoint& destination) {
  if (destination.address.is_multicast()) return {};
  const auto routed = routed_source(source, destination);
  if (routed) return {};
  switch (routed.error().condition) {
    case std::errc::network_unreachable:
    case std::errc::host_unreachable: return std::unexpected(routed.error());
    default: return {};  // what the NIC makes of it is the NIC's business
  }
}

}  // namespace verbena::compat::rdma_cm
