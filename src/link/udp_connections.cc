// SPDX-License-Identifier: Apache-2.0
#include "link/udp_connections.h"

#include <algorithm>

#include "link/local_address.h"
#include "wire/headers.h"

namespace verbena::link {

/// A send that no connected socket is there for.
UdpOutlet* UdpConnections::count(Place& place, const wire::Address& destination,
                                 std::uint32_t slot) {
  if (all_refused_ || destination.is_multicast()) return nullptr;
  if (place.slot != slot || place.destination != destination) {
    if (place.weight > 0) {
      --place.weight;
      return nullptr;
    }
    place = {.destination = destination, .slot = slot};
  }
  place.weight = std::min(place.weight + 1, kFull);
  if (place.refused || place.weight < kWorthwhile) return nullptr;
  if (destination.is_loopback() || find_local(destination)) {
    const SocketAddress peer(destination, wire::kRoceUdpPort, own_.scope());
    place.outlet = UdpOutlet::connected(own_, peer, fd_);
  }
  place.refused = !place.outlet;
  return place.outlet ? &*place.outlet : nullptr;
}

void UdpConnections::refuse(const wire::Address& destination) {
  for (Place& place : places_) {
    if (place.destination != destination) continue;
    place.outlet.reset();
    place.refused = true;
  }
}

void UdpConnections::refuse_all() {
  places_ = {};
  all_refused_ = true;
}

}  // namespace verbena::link
