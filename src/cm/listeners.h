// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/result.h"
#include "cm/event.h"
#include "wire/address.h"

namespace verbena::cm {

/// Where REQs and SIDR REQs for a service are taken.
struct Listening {
  std::uint64_t service_id = 0;
  wire::Address address{};    ///< zero: any of ours
  bool ipv6_only = false;     ///< of zero: not IPv4 as well
  std::uint32_t backlog = 0;  ///< requests that the program has not seen yet
};

/// Who listens for what, and how many requests wait there.
class Listeners {
 public:
  explicit Listeners(std::size_t most) : most_(most) {}

  /// address_in_use when that service is listened for at that address, not_enough_memory at the
  /// limit.
  [[nodiscard]] Result<ListenerId> add(const Listening& listening);
  void remove(ListenerId id);
  /// Who is to have a request that came to `address`: a listener at that address before one at any.
  /// 0 when nobody listens.
  [[nodiscard]] ListenerId find(std::uint64_t service_id, const wire::Address& address) const;
  /// One more request waits; false when the backlog is full.
  [[nodiscard]] bool add_waiting(ListenerId id);
  void remove_waiting(ListenerId id);

 private:
  struct Listener {
    Listening listening{};
    std::uint32_t waiting = 0;
  };
  std::size_t most_;
  ListenerId next_ = 1;
  std::map<ListenerId, Listener> listeners_{};
  /// Of equal keys any may be the one: they differ in the family that they take.
  std::multimap<std::uint64_t, ListenerId> by_service_{};
};

}  // namespace verbena::cm
