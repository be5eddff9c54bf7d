// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/result.h"
#include "cm/event.h"
#include "wire/address.h"

namespace verbena::cm {

/// What "any address" stands for.
enum class Families : std::uint8_t { kBoth, kIpv4, kIpv6 };

/// Where REQs or SIDR REQs for a service are taken.
struct Listening {
  std::uint64_t service_id = 0;
  wire::Address address{};  ///< zero: any of ours
  Families families{};      ///< of zero
  bool connections = true;  ///< takes REQs
  bool datagrams = false;   ///< takes SIDR REQs
  /// Requests that the program has not seen; 0, or more than kMaxBacklog: as many as that.
  std::uint32_t backlog = 0;
};
inline constexpr std::uint32_t kMaxBacklog = 1024;

enum class RequestKind : std::uint8_t { kConnection, kDatagrams };

/// Who listens for what, and which requests wait there to be seen.
class Listeners {
 public:
  explicit Listeners(std::size_t most) : most_(most) {}

  /// address_in_use when that service is listened for at that address, not_enough_memory at the
  /// limit.
  [[nodiscard]] Result<ListenerId> add(const Listening& listening);
  /// With what waits there.
  void remove(ListenerId id);
  /// Who is to have a request that came to `address`: a listener at that address before one at any.
  /// 0 when nobody listens.
  [[nodiscard]] ListenerId find(std::uint64_t service_id, const wire::Address& address,
                                RequestKind kind) const;

  /// One more request waits, until it was seen, even when it is over before; false when the backlog
  /// is full.
  [[nodiscard]] bool add_waiting(ListenerId id, ConnectionId request);
  /// The program has seen it. Nothing when it does not wait.
  void seen(ConnectionId request);
  [[nodiscard]] bool waits(ConnectionId request) const { return waiting_.contains(request); }

 private:
  struct Listener {
    Listening listening{};
    std::uint32_t waiting = 0;
  };
  std::size_t most_;
  ListenerId next_ = 1;
  std::map<ListenerId, Listener> listeners_{};
  std::multimap<std::uint64_t, ListenerId> by_service_{};
  std::map<ConnectionId, ListenerId> waiting_{};
};

}  // namespace verbena::cm
