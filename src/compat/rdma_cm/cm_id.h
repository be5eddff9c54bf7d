// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cm/event.h"
#include "compat/rdma_cm/endpoint.h"
#include "wire/address.h"
#include "wire/cm_service.h"

namespace verbena::compat::rdma_cm {

struct File;
struct Port;

/// Where an id stands, with the names of Linux's `rdma_cm.h`. What it waits for there, address and
/// route, is known here at once.
enum class IdState : std::uint8_t {
  kIdle,
  kAddressBound,
  kAddressResolved,
  kRouteResolved,
  kConnect,  ///< from the request on, whatever becomes of it
  kDisconnect,
  kListen,
  kDeviceRemoval,
};

/// The path from an id's address to its peer's: what a path record says of it.
struct Route {
  wire::Address source{};
  wire::Address destination{};
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint8_t service_level = 0;
  std::uint8_t mtu = 0;              ///< the code of enum ibv_mtu
  std::uint8_t rate = 0;             ///< of enum ibv_rate
  std::uint8_t packet_lifetime = 0;  ///< 4.096 us * 2^t
};

/// What the two ends agree on, as this one sees it: INIT_QP_ATTR tells it.
struct Agreement {
  std::uint32_t remote_qp = 0;
  std::uint32_t send_psn = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t timeout = 0;
};

/// A port of a port space that an id has, at one device.
struct Reservation {
  Port* port = nullptr;
  std::size_t place = 0;
  cm::ListenerId listener = 0;  ///< 0: it does not listen
};

/// An rdma_cm_id, as the kernel has it. Under the agent's lock.
struct Id {
  std::uint32_t number = 0;
  std::uint64_t uid = 0;  ///< what the program calls it; 0: it has not accepted it yet
  File* file = nullptr;
  std::uint32_t events_reported = 0;

  wire::PortSpace space{};
  ibv_qp_type qp_type{};
  IdState state = IdState::kIdle;
  Endpoint source{};
  Endpoint destination{};
  /// The device that it is bound to; null while it is bound to none, or to all.
  Port* port = nullptr;
  std::vector<Reservation> reservations{};
  std::uint32_t backlog = 0;  ///< of a listener
  bool has_route = false;     ///< `route` is known
  Route route{};

  /// Of the kernel's id that stands for this one at the kernel's own device.
  std::optional<std::uint32_t> kernel_number{};
  bool at_both = false;  ///< it is ours as well: bound to any address

  // Options.
  bool reuse_address = false;
  std::optional<bool> family_only{};
  std::optional<std::uint8_t> type_of_service{};
  std::optional<std::uint8_t> ack_timeout{};

  // The connection, or the request for a datagram service's queue pair.
  bool requested = false;           ///< there is one, or was
  cm::ConnectionId connection = 0;  ///< 0: none that the manager knows
  bool passive = false;
  bool seen = true;  ///< the program knows of the id
  std::uint32_t psn = 0;
  std::uint32_t qkey = 0;  ///< 0: none is set
  Agreement agreement{};
  std::uint32_t qp_num = 0;
  bool shared_receive_queue = false;

  [[nodiscard]] bool datagrams() const { return qp_type == IBV_QPT_UD; }
  /// Whether it is the kernel's alone: nothing but its options and numbers is known here.
  [[nodiscard]] bool is_foreign() const { return kernel_number && !at_both; }
};

/// A multicast group that an id has joined.
struct Multicast {
  std::uint32_t number = 0;
  std::uint64_t uid = 0;
  Id* id = nullptr;
  std::uint32_t events_reported = 0;
  std::optional<std::uint32_t> kernel_number{};  ///< of a foreign id's
};

}  // namespace verbena::compat::rdma_cm
