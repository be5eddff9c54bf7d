// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/time.h"
#include "link/packet_socket.h"
#include "wire/address.h"

namespace verbena::link {

/// Looks for a host's MAC address; nothing while it is not known.
using MacLookup = std::function<std::optional<MacAddress>(const wire::Address& host)>;

/// What the kernel knows by ARP and neighbour discovery of an interface (its number). A host that
/// it does not know it is made to ask for, so that a later call finds it.
[[nodiscard]] MacLookup kernel_lookup(std::uint32_t interface);

/// The MAC addresses of an Ethernet's hosts, for a link that makes its own frames: remembers what
/// was found, and for how long nothing was, so that few packets cost a look.
///
/// Threads: none; it belongs to its link.
class Neighbours {
 public:
  static constexpr Duration kKept = std::chrono::seconds(5);
  static constexpr Duration kPause = std::chrono::milliseconds(10);  ///< before looking again

  explicit Neighbours(MacLookup lookup) : lookup_(std::move(lookup)) {}

  [[nodiscard]] std::optional<MacAddress> find(const wire::Address& host, Time now);

 private:
  struct Entry {
    wire::Address host{};
    std::optional<MacAddress> mac{};
    Time until = Time::min();
  };
  static constexpr std::size_t kEntries = 64;

  const MacLookup lookup_;
  std::array<Entry, kEntries> entries_{};
};

}  // namespace verbena::link
