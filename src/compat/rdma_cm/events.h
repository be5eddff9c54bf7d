// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "compat/rdma_cm/agent.h"
#include "compat/rdma_cm/request.h"

/// What programs are told: queued here, taken by GET_EVENT. With the agent's lock held, but
/// get_event().
namespace verbena::compat::rdma_cm {

/// What is said beside the kind: a status (0, -errno, or a reason), and a connection's or a
/// datagram service's parameters.
struct Telling {
  Happened what{};
  std::int32_t status = 0;
};

[[nodiscard]] rdma_ucm_event_resp telling(const Telling& telling);
/// Puts private data behind parameters, whose structs have the same fields for it.
template <typename Parameters>
void set_private_data(Parameters& parameters, ConstBytes data) {
  std::copy_n(reinterpret_cast<const __u8*>(data.data()), data.size(), parameters.private_data);
  parameters.private_data_len = static_cast<__u8>(data.size());
}

/// Queues it for the id. Nothing while the program has not accepted the id: it could not tell
/// whose the event is.
void tell(Id& id, rdma_ucm_event_resp response);
/// A connect request: `request` is the new id.
void tell_request(Id& listener, Id& request, rdma_ucm_event_resp response);
void tell_multicast(Multicast& multicast, rdma_ucm_event_resp response);

/// Takes the events out that `unwanted` names.
void purge_events(File& file, const std::function<bool(const QueuedEvent&)>& unwanted);
/// Moves the id's events, in order.
void move_events(File& from, File& to, const Id& id);

/// Waits until there is an event, where the descriptor is blocking. Without the lock.
[[nodiscard]] Result<void> get_event(Agent& agent, const std::shared_ptr<File>& file,
                                     const Request& request);

}  // namespace verbena::compat::rdma_cm
