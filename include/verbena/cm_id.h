// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "verbena/context.h"
#include "verbena/protection_domain.h"
#include "verbena/queue_pair.h"
#include "verbena/socket_address.h"

namespace verbena::verbs::detail {
struct cm_channel_state;
struct cm_id_state;
template <>
[[nodiscard]] observed_object seen_as(const rdma_cm_id* raw);
template <>
[[nodiscard]] observed_object seen_as(const rdma_event_channel* raw);
}  // namespace verbena::verbs::detail

/// The rdma_cm: connections by IP address and port. `connector` and `listener` are for most
/// programs; `id` and `event_channel` are what they are made of.
///
/// Source: rdma_cm(7), IBA 12, IBA annex A11 (IP addressing).
namespace verbena::verbs::cm {

class event;
class event_channel;

/// What ports are counted in, and what is connected. Source: rdma_create_id(3).
enum class port_space : int {
  tcp = RDMA_PS_TCP,      ///< reliable connections
  udp = RDMA_PS_UDP,      ///< datagrams, and multicast
  ipoib = RDMA_PS_IPOIB,  ///< datagrams that interoperate with IP over InfiniBand's groups
  ib = RDMA_PS_IB,        ///< any service, by InfiniBand's service identifiers
};

/// What the two ends of a connection tell each other. Source: rdma_connect(3), rdma_accept(3).
struct connection_parameters {
  /// Read while the call is made. At most 56 bytes for a connect over the TCP space, 196 for an
  /// accept, 180 and 136 over the UDP one.
  std::span<const std::byte> private_data{};
  std::uint8_t responder_resources = 1;  ///< the peer's READs and atomics that may be under way
  std::uint8_t initiator_depth = 1;      ///< ours
  std::uint8_t retry_count = 7;          ///< of a connect
  std::uint8_t rnr_retry_count = 7;      ///< 7: for ever
  bool flow_control = true;              ///< the device's own, of receives that there are
  /// Of a queue pair that `create_qp` did not make.
  qp_number number{};
  bool has_srq = false;  ///< likewise
};

/// A queue pair's attributes as the rdma_cm has them for a state, for programs that move their own.
struct state_attributes {
  ibv_qp_attr attributes{};  ///< for ibv_modify_qp(3)
  int mask = 0;              ///< IBV_QP_…: which of them are set
};

/// How a peer is reached. Source: rdma_cma.h, struct rdma_route.
struct route {
  verbs::port of{};                      ///< ours
  gid source{};                          ///< of our port
  gid destination{};                     ///< of the peer's
  std::uint16_t pkey = 0;                ///< 0xffff is the full member's default
  std::vector<ibv_sa_path_rec> paths{};  ///< empty until the route is resolved
};

/// An end of a connection to be, or of one: an `rdma_cm_id`. Calls start something; the channel's
/// events tell how it ends.
///
/// Events were acknowledged when they were taken, so destroying one never waits for that. A queue
/// pair that it made holds it: the queue pair goes first, whatever the order of the handles.
///
/// Threads: one at a time, and it may go from one to another; the channel's events may be taken by
/// another. Shared as const it starts nothing.
class id : public verbs::detail::handle<rdma_cm_id> {
 public:
  /// For that space; its events come to the channel. Source: rdma_create_id(3).
  [[nodiscard]] static Result<id> create(const event_channel& channel,
                                         port_space space = port_space::tcp);

  /// One that C calls have made, on a channel that was adopted before. It is the handle's own while
  /// there is one: its `context` is used here, and given back at the end where it is borrowed. A
  /// queue pair that it has is adopted by `queue_pair::adopt`, borrowed, and ends before an id that
  /// is owned. `invalid_argument` for null and for an id of another channel.
  [[nodiscard]] static Result<id> adopt(rdma_cm_id* raw, const event_channel& channel,
                                        ownership whose);

  /// What its events say of whom they are (`event::about`): unique in the process, for ever.
  [[nodiscard]] std::uint64_t number() const noexcept;
  [[nodiscard]] port_space space() const noexcept;  ///< as it was created
  /// For logs: its number, its addresses, and its queue pair with the state, as far as there are.
  [[nodiscard]] std::string describe() const;

  /// @name Options, before what they are for. Source: rdma_set_option(3)
  /// @{

  /// Of IP: the service code and two bits of congestion marks.
  [[nodiscard]] Result<> set_type_of_service(std::uint8_t tos);
  /// Whether its address may be bound while another id has it.
  [[nodiscard]] Result<> set_reuse_address(bool on);
  /// Whether an IPv6 address that is any is not IPv4's, too.
  [[nodiscard]] Result<> set_ipv6_only(bool on);
  /// Of the queue pair that will be connected.
  [[nodiscard]] Result<> set_ack_timeout(ack_timeout timeout);

  /// @}
  /// @name Addresses
  /// @{

  /// Port 0 has one chosen: `local_addr()`.
  [[nodiscard]] Result<> bind(const socket_address& to);
  /// To event_type::address_resolved: then a device is chosen. Source: rdma_resolve_addr(3).
  [[nodiscard]] Result<> resolve_address(const socket_address& peer,
                                         std::chrono::milliseconds timeout,
                                         const std::optional<socket_address>& from = {});
  /// To event_type::route_resolved. Source: rdma_resolve_route(3).
  [[nodiscard]] Result<> resolve_route(std::chrono::milliseconds timeout);
  /// No address until it is bound, resolved or accepted.
  [[nodiscard]] socket_address local_addr() const noexcept;
  /// No address until it is resolved or accepted.
  [[nodiscard]] socket_address peer_addr() const noexcept;
  /// `not_connected` before a device is chosen.
  [[nodiscard]] Result<cm::route> route() const;

  /// @}
  /// @name What belongs to it
  /// @{

  /// The rdma_cm's own context of the device: protection domains and queues for this id's queue
  /// pair are made of it, not of a context that was opened by name. It is open as long as this
  /// handle or a child is, whatever becomes of the id. `not_connected` before a device is chosen.
  [[nodiscard]] Result<verbs::context> context() const;
  /// A queue pair that connects, and ends, with this id: RC in the TCP space, UD in the UDP one,
  /// where it is in RTS at once. Once for each id. Source: rdma_create_qp(3).
  template <service S>
  [[nodiscard]] Result<queue_pair<S>> create_qp(const protection_domain& pd,
                                                const qp_init_attributes<S>& attributes);
  /// Whether `create_qp` of this id has made it.
  [[nodiscard]] bool made(const verbs::detail::queue_pair_base& qp) const noexcept;
  /// For a queue pair that the program moves itself. Source: rdma_init_qp_attr(3).
  [[nodiscard]] Result<state_attributes> attributes_for(qp_state state) const;

  /// @}
  /// @name Connecting
  /// @{

  /// To event_type::established, or what says why not. A queue pair of `create_qp` is moved along.
  /// Source: rdma_connect(3).
  [[nodiscard]] Result<> connect(const connection_parameters& parameters = {});
  /// Ends a connect after event_type::connect_response, with a queue pair of the program's own.
  [[nodiscard]] Result<> establish();
  /// To event_type::connect_request for each that asks; `backlog` of them wait at most. Source:
  /// rdma_listen(3).
  [[nodiscard]] Result<> listen(int backlog);
  /// To event_type::established. A queue pair of `create_qp` is moved along. Source:
  /// rdma_accept(3).
  [[nodiscard]] Result<> accept(const connection_parameters& parameters = {});
  /// At most 148 bytes, 136 of datagrams.
  [[nodiscard]] Result<> reject(std::span<const std::byte> private_data = {});
  /// The queue pair goes to ERR, and both ends get event_type::disconnected. To answer a peer's,
  /// too.
  [[nodiscard]] Result<> disconnect();
  /// The first data came before event_type::established. Source: rdma_notify(3).
  [[nodiscard]] Result<> notify(ibv_event_type what);

  /// @}
  /// @name Multicast, in the UDP space. Source: rdma_join_multicast(3)
  /// @{

  /// To event_type::multicast_join with `event::tag() == tag`. A queue pair of this id is attached.
  [[nodiscard]] Result<> join(const socket_address& group, std::uint64_t tag = 0,
                              bool send_only = false);
  /// A queue pair of this id is detached. Source: rdma_leave_multicast(3).
  [[nodiscard]] Result<> leave(const socket_address& group);

  /// @}

  /// Its events, those that wait included, go to that channel from now on. No event of it may be
  /// waited for in another thread meanwhile. Source: rdma_migrate_id(3).
  [[nodiscard]] Result<> migrate(const event_channel& to);

 private:
  friend class event_channel;
  id(rdma_cm_id* raw, std::shared_ptr<verbs::detail::cm_id_state> state,
     ownership whose = ownership::owned);
  [[nodiscard]] Result<> set(int name, const void* value, std::size_t size);
  [[nodiscard]] Result<verbs::detail::queue_pair_base> make_qp(
      const protection_domain& pd, const verbs::detail::plain_qp_attributes& from);

  std::shared_ptr<verbs::detail::cm_id_state> state_;
};

template <service S>
Result<queue_pair<S>> id::create_qp(const protection_domain& pd,
                                    const qp_init_attributes<S>& attributes) {
  auto made = VERBENA_TRY(make_qp(pd, attributes.plain()));
  return queue_pair<S>(std::move(made));
}

}  // namespace verbena::verbs::cm
