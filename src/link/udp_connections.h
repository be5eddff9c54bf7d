// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "link/address_hash.h"
#include "link/udp_outlet.h"
#include "link/udp_socket.h"
#include "wire/address.h"

namespace verbena::link {

/// The connected sockets of a link, one for each destination within the machine that much is sent
/// to: a peer's address and slot, since each slot's receiver follows the identifications of what
/// comes to it. A fixed number of places; a destination loses its place to another when it gets
/// less than that one.
///
/// Not for destinations elsewhere: a firewall may let through only what it knows, from port 4791,
/// two flows of one queue pair may overtake each other, and a network's time is longer than what a
/// route costs.
///
/// Threads: one at a time.
class UdpConnections {
 public:
  /// Beside `fd`, a link's socket at `own`. Without a guard there are none.
  UdpConnections(int fd, const SocketAddress& own, FdGuard guard)
      : fd_(fd), own_(own), guard_(std::move(guard)) {}

  /// Where a send to that destination leaves by; null: by the link's own socket. Asked once a send.
  [[nodiscard]] UdpOutlet* outlet(const wire::Address& destination, std::uint32_t slot) {
    Place& place = places_[hash_of(destination, slot << 8) % kPlaces];
    if (place.outlet && place.slot == slot && place.destination == destination) {
      place.weight = std::min(place.weight + 1, kFull);
      return &*place.outlet;
    }
    return count(place, destination, slot);
  }

  /// No connected socket sends to that destination any more: it did not go well.
  void refuse(const wire::Address& destination);
  /// What is within the machine may have changed: all begins anew.
  void forget() { places_ = {}; }

 private:
  struct Place {
    wire::Address destination{};
    std::uint32_t slot = 0;
    std::uint32_t weight = 0;  ///< sends there, less those to others
    bool refused = false;
    std::optional<UdpOutlet> outlet{};
  };
  static constexpr std::size_t kPlaces = 16;  ///< a power of two
  static constexpr std::uint32_t kWorthwhile = 32;
  static constexpr std::uint32_t kFull = 64;

  UdpOutlet* count(Place& place, const wire::Address& destination, std::uint32_t slot);
  [[nodiscard]] bool is_within_machine(const wire::Address& destination) const;

  int fd_;
  SocketAddress own_;
  FdGuard guard_;
  std::array<Place, kPlaces> places_{};
};

}  // namespace verbena::link
