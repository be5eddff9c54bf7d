// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "verbena/cm_id.h"

namespace verbena::verbs::cm {

/// What has happened. Source: rdma_get_cm_event(3).
enum class event_type : int {
  address_resolved = RDMA_CM_EVENT_ADDR_RESOLVED,   ///< a device is chosen
  address_error = RDMA_CM_EVENT_ADDR_ERROR,         ///< no device leads there
  route_resolved = RDMA_CM_EVENT_ROUTE_RESOLVED,    ///< it can be connected
  route_error = RDMA_CM_EVENT_ROUTE_ERROR,          ///< no way leads there
  connect_request = RDMA_CM_EVENT_CONNECT_REQUEST,  ///< a peer asks one that listens
  /// A peer has accepted, and waits for `id::establish`.
  connect_response = RDMA_CM_EVENT_CONNECT_RESPONSE,
  connect_error = RDMA_CM_EVENT_CONNECT_ERROR,    ///< it failed on the way
  unreachable = RDMA_CM_EVENT_UNREACHABLE,        ///< nobody has answered
  rejected = RDMA_CM_EVENT_REJECTED,              ///< the peer would not, or nobody listens
  established = RDMA_CM_EVENT_ESTABLISHED,        ///< both ends are connected; of datagrams: known
  disconnected = RDMA_CM_EVENT_DISCONNECTED,      ///< by either end
  device_removal = RDMA_CM_EVENT_DEVICE_REMOVAL,  ///< all that was made of the device is void
  multicast_join = RDMA_CM_EVENT_MULTICAST_JOIN,  ///< the group is joined
  multicast_error = RDMA_CM_EVENT_MULTICAST_ERROR,  ///< it was not, or is lost
  address_change = RDMA_CM_EVENT_ADDR_CHANGE,       ///< another device has the address now
  timewait_exit = RDMA_CM_EVENT_TIMEWAIT_EXIT,      ///< the queue pair's number can be used again
};
/// "established"
[[nodiscard]] std::string_view name_of(event_type type) noexcept;

/// Where datagrams go, as an event has told it: a peer, or a group.
struct datagram_target {
  path way{};      ///< for `create_ah`
  qp_number to{};  ///< the peer's queue pair; of a group all
  qkey key{};      ///< the peer's, or the group's

  /// To send with: `datagram_address{ah, target.to, target.key}`.
  [[nodiscard]] Result<address_handle> create_ah(const protection_domain& pd) const {
    return pd.create_ah(way);
  }
};

/// What has happened to an id. A value: it was acknowledged when it was taken, so it keeps no id
/// from being destroyed, and all that it says was copied.
class event {
 public:
  /// What has happened.
  [[nodiscard]] event_type type() const noexcept { return type_; }
  /// 0, a negative errno, or a reason of the peer's. `failure()` explains it.
  [[nodiscard]] int status() const noexcept { return status_; }
  /// `id::number()` of whom it is about: of a request, the new one's.
  [[nodiscard]] std::uint64_t about() const noexcept { return about_; }
  /// Whether it is about that one.
  [[nodiscard]] bool is_of(const id& one) const noexcept { return one && one.number() == about_; }
  /// Of a request: `id::number()` of the one that listens.
  [[nodiscard]] std::uint64_t listener() const noexcept { return listener_; }
  /// Of multicast events: what `id::join` was given.
  [[nodiscard]] std::uint64_t tag() const noexcept { return tag_; }

  /// The peer's words. Zeros follow them to the message's full length where the transport has no
  /// length for them, as InfiniBand's has not.
  [[nodiscard]] const std::vector<std::byte>& private_data() const noexcept {
    return private_data_;
  }
  /// Of requests and established connections: what the peer's end allows of READs and atomics,
  /// seen from here. Its private data is not among it.
  [[nodiscard]] const connection_parameters& parameters() const noexcept { return parameters_; }
  /// Of datagrams, once they are resolved, and of joined groups.
  [[nodiscard]] const std::optional<datagram_target>& target() const noexcept { return target_; }
  /// Of a request: the id that stands for it. Only once; who does not take it refuses the peer.
  [[nodiscard]] std::optional<id> take_request() noexcept {
    return std::exchange(request_, std::nullopt);
  }

  /// Whether it says that something did not come to be, or ended.
  [[nodiscard]] bool is_failure() const noexcept;
  /// What that is as an error: a rejected connection is `connection_refused` with the peer's
  /// `refusal()`, an unanswered one `timed_out`, a disconnected one `connection_reset`, a device
  /// that is gone `no_such_device`.
  [[nodiscard]] Error failure() const;

 private:
  friend class event_channel;
  event() = default;

  event_type type_ = event_type::timewait_exit;
  int status_ = 0;
  std::uint64_t about_ = 0;
  std::uint64_t listener_ = 0;
  std::uint64_t tag_ = 0;
  std::vector<std::byte> private_data_;
  connection_parameters parameters_{};
  std::optional<datagram_target> target_;
  std::optional<id> request_;
};

/// Where the events of any number of ids come. Ids hold it.
///
/// Threads: any. Two that take events each get some; a queue pair is not destroyed while an event
/// is being taken.
class event_channel : public verbs::detail::handle<rdma_event_channel> {
 public:
  /// `no_such_device` where the machine has no rdma_cm.
  [[nodiscard]] static Result<event_channel> create();
  /// One that C calls have made; its descriptor does not block any more. From then on its events
  /// are taken here only, and all its ids are adopted, for an event says whose it is by the id's
  /// `context`. `invalid_argument` for null.
  [[nodiscard]] static Result<event_channel> adopt(rdma_event_channel* raw, ownership whose);

  /// Readable while an event waits. It is never to be read, nor its flags to be changed.
  [[nodiscard]] int fd() const noexcept { return native() == nullptr ? -1 : raw()->fd; }
  /// Whether `get_event` waits; it does until this is told otherwise.
  [[nodiscard]] Result<> set_blocking(bool blocking) const;
  /// The oldest event. `would_block` when none waits and the channel does not block.
  [[nodiscard]] Result<event> get_event() const;
  /// The oldest event, or `would_block`.
  [[nodiscard]] Result<event> try_get_event() const;
  /// Waits until an event can be taken; false where the time is over, or it was asked to stop.
  [[nodiscard]] Result<bool> wait(std::chrono::milliseconds at_most,
                                  const std::stop_token& stop = {}) const;

 private:
  friend class id;
  event_channel(rdma_event_channel* raw, std::shared_ptr<verbs::detail::cm_channel_state> state,
                ownership whose);
  [[nodiscard]] event copy_out(const rdma_cm_event& from) const;

  std::shared_ptr<verbs::detail::cm_channel_state> state_;
};

}  // namespace verbena::verbs::cm
