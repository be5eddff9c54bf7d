// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "verbena/cm_connection.h"

/// Datagrams by IP address and port: who has the service, and groups. The three ways to take a
/// step are those of `cm_connection.h`.
/// Threads: each phase is one's at a time, and may go from one to another; so do a peer and a
/// group. Source: rdma_cm(7), IBA 12.11 (service identifier resolution), rdma_join_multicast(3).
namespace verbena::verbs::cm {

/// The queue key of the UDP space: what a queue pair is activated with that is to be reached so.
inline constexpr qkey datagram_qkey{RDMA_UDP_QKEY};

/// A peer that takes datagrams.
class datagram_peer {
 public:
  /// What to send to.
  [[nodiscard]] const datagram_target& target() const noexcept { return target_; }
  /// What it has said. See `event::private_data`.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }
  /// Of the device that reaches it: the address handle and the queue pair are made of it, or of
  /// one that was opened by name.
  [[nodiscard]] Result<verbs::context> context() const { return end_.one.context(); }
  /// Ours, which leads there.
  [[nodiscard]] socket_address local_addr() const noexcept { return end_.one.local_addr(); }
  /// The peer, as it was asked for.
  [[nodiscard]] socket_address peer_addr() const noexcept { return end_.one.peer_addr(); }

 private:
  friend class datagram_resolver;
  datagram_peer(detail::end end, const datagram_target& target, std::vector<std::byte> said)
      : end_(std::move(end)), target_(target), private_data_(std::move(said)) {}
  detail::end end_;
  datagram_target target_;
  std::vector<std::byte> private_data_;
};

/// Asks a peer for the queue pair of a service.
class datagram_resolver {
 public:
  /// Waits for the answer. `connection_refused` with `Error::refusal()` where the peer has not the
  /// service, or says no; `timed_out` when nobody has answered.
  [[nodiscard]] static Result<datagram_peer> resolve(
      const socket_address& peer, std::span<const std::byte> private_data = {},
      const resolve_options& options = {},
      std::chrono::milliseconds at_most = std::chrono::seconds(30));
  /// Without waiting; its events come to the channel.
  [[nodiscard]] static Result<datagram_resolver> start(const event_channel& channel,
                                                       const socket_address& peer,
                                                       std::span<const std::byte> private_data = {},
                                                       const resolve_options& options = {});
  /// The same, on a channel of its own.
  [[nodiscard]] static Result<datagram_resolver> start(const socket_address& peer,
                                                       std::span<const std::byte> private_data = {},
                                                       const resolve_options& options = {});
  /// The peer when the event was the last one. After that, or an error, it is empty.
  [[nodiscard]] Result<std::optional<datagram_peer>> handle(const event& happened);
  /// As `connector::event_fd`.
  [[nodiscard]] int event_fd() const noexcept { return end_.own_fd(); }
  /// As `connector::handle_waiting`.
  [[nodiscard]] Result<std::optional<datagram_peer>> handle_waiting();
  /// To tell its events; moves on with the peer.
  [[nodiscard]] const cm::id& cm_id() const noexcept { return end_.one; }

 private:
  datagram_resolver(detail::end end, std::chrono::milliseconds timeout,
                    std::span<const std::byte> said)
      : end_(std::move(end)), timeout_(timeout), private_data_(said.begin(), said.end()) {}
  [[nodiscard]] static Result<datagram_resolver> begin(detail::end end, const socket_address& peer,
                                                       std::span<const std::byte> private_data,
                                                       const resolve_options& options);

  detail::end end_;
  std::chrono::milliseconds timeout_;
  std::vector<std::byte> private_data_;
};

/// Somebody who asks for a service's queue pair. Destroyed without an answer, it refuses.
class datagram_request {
 public:
  /// See `event::private_data`.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }
  /// See `id::context`.
  [[nodiscard]] Result<verbs::context> context() const { return one_.context(); }
  /// Of the service.
  [[nodiscard]] socket_address local_addr() const noexcept { return one_.local_addr(); }
  /// Of who asks.
  [[nodiscard]] socket_address peer_addr() const noexcept { return one_.peer_addr(); }
  /// Tells the number of a queue pair that was activated with `datagram_qkey`. At most 136 bytes.
  [[nodiscard]] Result<> accept(const queue_pair<ud>& qp,
                                std::span<const std::byte> private_data = {}) &&;
  /// At most 136 bytes. The peer gets `connection_refused` with them.
  [[nodiscard]] Result<> reject(std::span<const std::byte> private_data = {}) &&;

 private:
  friend class datagram_listener;
  datagram_request(cm::id one, std::vector<std::byte> said)
      : one_(std::move(one)), private_data_(std::move(said)) {}
  cm::id one_;
  std::vector<std::byte> private_data_;
};

/// Answers who asks for a service.
class datagram_listener {
 public:
  /// Port 0 has one chosen; `backlog` requests wait at most. `address_in_use`;
  /// `address_not_available` where no device has it.
  [[nodiscard]] static Result<datagram_listener> bind(const socket_address& to, int backlog = 128);
  /// Its events come to that channel.
  [[nodiscard]] static Result<datagram_listener> bind(const event_channel& channel,
                                                      const socket_address& to, int backlog = 128);
  /// With the port that was chosen.
  [[nodiscard]] socket_address local_addr() const noexcept { return end_.one.local_addr(); }
  /// `not_connected` where it listens on all devices.
  [[nodiscard]] Result<verbs::context> context() const { return end_.one.context(); }
  /// For what this class does not have.
  [[nodiscard]] const cm::id& cm_id() const noexcept { return end_.one; }
  /// Waits for somebody, on a channel of its own. `timed_out`.
  [[nodiscard]] Result<datagram_request> accept(std::chrono::milliseconds at_most);
  /// Does not wait: `would_block` where nobody does. On a channel of its own.
  [[nodiscard]] Result<datagram_request> try_accept();
  /// Readable when somebody may wait; -1 where the channel is shared.
  [[nodiscard]] int fd() const noexcept { return end_.own ? end_.own->fd() : -1; }
  /// Who asks, when that is what the event was. What is not its own is left alone.
  [[nodiscard]] Result<std::optional<datagram_request>> handle(event& happened);

 private:
  explicit datagram_listener(detail::end end) : end_(std::move(end)) {}
  [[nodiscard]] static Result<datagram_listener> begin(detail::end end, const socket_address& to,
                                                       int backlog);
  detail::end end_;
};

/// A membership in a group of an IP multicast address. Its queue pair receives what is sent to the
/// group; destroyed, it leaves.
class multicast_group {
 public:
  multicast_group(multicast_group&&) noexcept = default;
  multicast_group& operator=(multicast_group&&) noexcept;
  multicast_group(const multicast_group&) = delete;
  multicast_group& operator=(const multicast_group&) = delete;
  ~multicast_group();

  /// Where to send: the group's GID, the queue pair number of all, the group's key.
  [[nodiscard]] const datagram_target& target() const noexcept { return target_; }
  /// With the port that it was joined with.
  [[nodiscard]] const socket_address& group() const noexcept { return group_; }
  /// In RTS. Empty where the group is joined for sending only.
  [[nodiscard]] queue_pair<ud>& qp() noexcept { return qp_; }
  /// An error when the event says that the group is lost.
  [[nodiscard]] Result<bool> handle(const event& happened);
  /// Leaves now. `bad_file_descriptor` once more.
  [[nodiscard]] Result<> leave();

 private:
  friend class multicast_joining;
  multicast_group(detail::end end, queue_pair<ud> qp, const socket_address& group,
                  const datagram_target& target)
      : end_(std::move(end)), qp_(std::move(qp)), group_(group), target_(target) {}
  detail::end end_;
  queue_pair<ud> qp_;
  socket_address group_;
  datagram_target target_;
};

/// Asked to join, and not told yet.
class multicast_joining {
 public:
  /// The group when the event was the last one. After that, or an error, it is empty.
  [[nodiscard]] Result<std::optional<multicast_group>> handle(const event& happened);
  /// As `connector::event_fd`.
  [[nodiscard]] int event_fd() const noexcept { return end_.own_fd(); }
  /// As `connector::handle_waiting`.
  [[nodiscard]] Result<std::optional<multicast_group>> handle_waiting();
  /// To tell its events; moves on with the group.
  [[nodiscard]] const cm::id& cm_id() const noexcept { return end_.one; }

 private:
  friend class multicast_socket;
  multicast_joining(detail::end end, queue_pair<ud> qp, const socket_address& group)
      : end_(std::move(end)), qp_(std::move(qp)), group_(group) {}
  detail::end end_;
  queue_pair<ud> qp_;
  socket_address group_;
};

/// A device that was chosen by an address of ours, to join a group with.
class multicast_socket {
 public:
  /// `address_not_available` where no device has it.
  [[nodiscard]] static Result<multicast_socket> bind(const socket_address& to);
  /// The same; the events of joining come to the channel.
  [[nodiscard]] static Result<multicast_socket> bind(const event_channel& channel,
                                                     const socket_address& to);

  /// Of the device that has the address.
  [[nodiscard]] Result<verbs::context> context() const { return end_.one.context(); }
  /// In RTS, with `datagram_qkey`: receives can be posted before the group is joined.
  [[nodiscard]] Result<queue_pair<ud>> create_qp(const protection_domain& pd,
                                                 const qp_init_attributes<ud>& attributes) {
    return end_.one.create_qp<ud>(pd, attributes);
  }
  /// Waits until it is a member. `qp` is what `create_qp` has made.
  [[nodiscard]] Result<multicast_group> join(
      queue_pair<ud> qp, const socket_address& group,
      std::chrono::milliseconds at_most = std::chrono::seconds(30)) &&;
  /// Without waiting.
  [[nodiscard]] Result<multicast_joining> start_join(queue_pair<ud> qp,
                                                     const socket_address& group) &&;

 private:
  explicit multicast_socket(detail::end end) : end_(std::move(end)) {}
  [[nodiscard]] static Result<multicast_socket> begin(detail::end end, const socket_address& to);
  detail::end end_;
};

}  // namespace verbena::verbs::cm
