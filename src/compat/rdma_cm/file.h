// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "compat/rdma_cm/cm_id.h"
#include "nic/eventfd_notifier.h"
#include "nic/host.h"

namespace verbena::compat::rdma_cm {

/// What the program is told, with the numbers of enum rdma_cm_event_type.
enum class Happened : std::uint32_t {
  kAddressResolved,
  kAddressError,
  kRouteResolved,
  kRouteError,
  kConnectRequest,
  kConnectResponse,
  kConnectError,
  kUnreachable,
  kRejected,
  kEstablished,
  kDisconnected,
  kDeviceRemoval,
  kMulticastJoin,
  kMulticastError,
  kAddressChange,
  kTimewaitExit,
};

struct QueuedEvent {
  Id* id = nullptr;       ///< which it is about: of a connect request the listener
  Id* request = nullptr;  ///< of a connect request: the new id
  Multicast* multicast = nullptr;
  rdma_ucm_event_resp response{};
};

/// An opening of the device. Under the agent's lock, but what is const.
struct File {
  File(std::unique_ptr<nic::EventfdNotifier> the_notifier, nic::Host& the_host,
       std::uint32_t the_generation)
      : notifier(std::move(the_notifier)), host(the_host), generation(the_generation) {}

  const std::unique_ptr<nic::EventfdNotifier> notifier;  ///< counts the events
  nic::Host& host;                                       ///< where to wait
  const std::uint32_t generation;                        ///< of the process that opened it
  bool closed = false;
  std::deque<QueuedEvent> events{};
};

}  // namespace verbena::compat::rdma_cm
