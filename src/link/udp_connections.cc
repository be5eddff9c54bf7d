// SPDX-License-Identifier: Apache-2.0
#include "link/udp_connections.h"

#include "wire/headers.h"

namespace verbena::link {

/// A send that no connected socket is there for.
UdpOutlet* UdpConnections::count(Place& place, const wire::Address& destination,
                                 std::uint32_t slot) {
  if (!guard_ || destination.is_multicast()) return nullptr;
  if (place.slot != slot || place.destination != destination) {
    if (place.weight > 0) {
      --place.weight;
      return nullptr;
    }
    place = {.destination = destination, .slot = slot};
  }
  place.weight = std::min(place.weight + 1, kFull);
  if (place.refused || place.weight < kWorthwhile) return nullptr;
  if (is_within_machine(destination)) {
    const SocketAddress peer(destination, wire::kRoceUdpPort, own_.scope());
    place.outlet = UdpOutlet::connected(own_, peer, fd_, guard_);
  }
  place.refused = !place.outlet;
  return place.outlet ? &*place.outlet : nullptr;
}

/// What can be bound is: no list of addresses has all of those (routes to a whole network).
bool UdpConnections::is_within_machine(const wire::Address& destination) const {
  const SocketAddress there(destination, 0, own_.scope());
  const sys::OwnedFd fd(sys::socket(there.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return fd && sys::bind(fd.get(), there.get(), there.size()) == 0;
}

void UdpConnections::refuse(const wire::Address& destination) {
  for (Place& place : places_) {
    if (place.destination != destination) continue;
    place.outlet.reset();
    place.refused = true;
  }
}

}  // namespace verbena::link
