// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbena/handle.h"
#include "verbena/types.h"

namespace verbena::verbs {

class protection_domain;

/// The way to a peer: an `ibv_ah_attr` with names. Source: ibv_create_ah(3), IBA 11.2.2.1.
struct path {
  gid to{};                        ///< the peer's
  port from{1};                    ///< ours
  gid_index source{};              ///< the row of our GID
  std::uint8_t hop_limit = 64;     ///< routers that it may pass
  std::uint8_t traffic_class = 0;  ///< of IP: the service code and two bits of congestion marks
  std::uint8_t service_level = 0;  ///< of InfiniBand, and of Ethernet's priorities
  std::uint32_t flow_label = 0;    ///< 20 bits
  lid to_lid{};                    ///< on InfiniBand
  std::uint8_t static_rate = 0;    ///< of ibv_rate(3); 0: as fast as the port

  [[nodiscard]] ibv_ah_attr native() const noexcept;  ///< for C calls
};

/// A peer's address, of datagrams. Threads: any sends to it.
class address_handle : public detail::handle<ibv_ah> {
 private:
  friend class protection_domain;
  address_handle(ibv_ah* raw, detail::keep parent);
};

/// Where a datagram goes: what each SEND of a UD queue pair needs.
struct datagram_address {
  const address_handle& ah;  ///< the way to the peer's port
  qp_number to;              ///< its queue pair
  qkey key;                  ///< its key
};

}  // namespace verbena::verbs
