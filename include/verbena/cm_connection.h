// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "verbena/cm_event.h"

/// A connection's way into being, each step a type that has only what can be done then:
///
///     connector -> resolved -> connecting -> connection
///     listener  -> incoming -> connecting -> connection
///
/// Each step can be taken in three ways. The blocking calls wait, within a time, on a channel that
/// the connection has to itself. The others start something and return. Where the connection has
/// its channel to itself, `handle_waiting` says what has become of it once `event_fd` is readable
/// (in a coroutine: verbena/async/cm.h). Events of a channel that any number of connections share
/// are given to `handle`, which leaves alone what is not its own (`event::about` finds whose it
/// is).
///
/// A phase that is destroyed before it has led to the next one takes its id with it, and its queue
/// pair: nothing half connected stays behind, and a peer that has been asked is told.
///
/// Threads: each phase is one's at a time, and may go from one to another.
namespace verbena::verbs::cm {

class connecting;
class connection;
class resolved;

namespace detail {

/// An id, and the channel where it has one to itself. The id holds its channel: any order.
struct end {
  cm::id one;
  std::optional<event_channel> own{};

  /// For a call that waits: `operation_not_permitted` where others' events would be taken.
  [[nodiscard]] Result<const event_channel*> own_channel(const char* operation) const;
  /// The channel's descriptor; -1 where that is shared.
  [[nodiscard]] int own_fd() const noexcept { return own ? own->fd() : -1; }
};

}  // namespace detail

/// How a peer is looked for.
struct resolve_options {
  std::optional<socket_address> from{};     ///< ours; its port may be 0
  std::chrono::milliseconds timeout{5000};  ///< for the address, and again for the route
  /// Of IP: the service code and two bits of congestion marks.
  std::optional<std::uint8_t> type_of_service{};
  std::optional<verbs::ack_timeout> ack_timeout{};  ///< of the queue pair that will be connected
  /// Ends a call that waits: `operation_canceled`. Not looked at by `start`, nor by tasks, which
  /// have `wait_options`.
  std::stop_token stop{};
};

/// Finds the device and the route that lead to a peer.
class connector {
 public:
  /// Waits for it. `host_unreachable`, `timed_out`, or what the system says.
  [[nodiscard]] static Result<resolved> resolve(const socket_address& peer,
                                                const resolve_options& options = {});
  /// Without waiting; its events come to the channel.
  [[nodiscard]] static Result<connector> start(const event_channel& channel,
                                               const socket_address& peer,
                                               const resolve_options& options = {});
  /// Without waiting, on a channel of its own.
  [[nodiscard]] static Result<connector> start(const socket_address& peer,
                                               const resolve_options& options = {});
  /// The next phase when the event was the last one. After that, or an error, it is empty.
  [[nodiscard]] Result<std::optional<resolved>> handle(const event& happened);
  /// The descriptor of the channel that it has to itself; -1 where that is shared.
  [[nodiscard]] int event_fd() const noexcept { return end_.own_fd(); }
  /// The same of the events that wait on the channel that it has to itself; nothing where more are
  /// to come.
  [[nodiscard]] Result<std::optional<resolved>> handle_waiting();

  /// To tell its events; moves on with the next phase.
  [[nodiscard]] const cm::id& cm_id() const noexcept { return end_.one; }

 private:
  connector(detail::end end, std::chrono::milliseconds timeout)
      : end_(std::move(end)), timeout_(timeout) {}
  [[nodiscard]] static Result<connector> begin(detail::end end, const socket_address& peer,
                                               const resolve_options& options);

  detail::end end_;
  std::chrono::milliseconds timeout_;
};

/// A peer that is known how to reach: what the queue pair needs can be made now.
class resolved {
 public:
  /// See `id::context`.
  [[nodiscard]] Result<verbs::context> context() const { return end_.one.context(); }
  /// In INIT: receives can be posted before it is connected.
  [[nodiscard]] Result<queue_pair<rc>> create_qp(const protection_domain& pd,
                                                 const qp_init_attributes<rc>& attributes) {
    return end_.one.create_qp<rc>(pd, attributes);
  }

  /// Waits until the peer has accepted. `qp` is what `create_qp` has made. `connection_refused`
  /// with `Error::refusal()`; `timed_out` when nobody has answered; `operation_canceled` when it
  /// was asked to stop.
  [[nodiscard]] Result<connection> connect(
      queue_pair<rc> qp, const connection_parameters& parameters = {},
      std::chrono::milliseconds at_most = std::chrono::seconds(30),
      const std::stop_token& stop = {}) &&;
  /// Without waiting.
  [[nodiscard]] Result<connecting> start_connect(queue_pair<rc> qp,
                                                 const connection_parameters& parameters = {}) &&;

  /// Ours, which leads there.
  [[nodiscard]] socket_address local_addr() const noexcept { return end_.one.local_addr(); }
  /// The peer, as it was asked for.
  [[nodiscard]] socket_address peer_addr() const noexcept { return end_.one.peer_addr(); }
  /// To tell its events; moves on with the next phase.
  [[nodiscard]] const cm::id& cm_id() const noexcept { return end_.one; }

 private:
  friend class connector;
  explicit resolved(detail::end end) : end_(std::move(end)) {}
  detail::end end_;
};

/// Asked for or accepted, and not established yet.
class connecting {
 public:
  /// The connection when the event was the last one. After that, or an error, it is empty.
  [[nodiscard]] Result<std::optional<connection>> handle(const event& happened);
  /// As `connector::event_fd`.
  [[nodiscard]] int event_fd() const noexcept { return end_.own_fd(); }
  /// As `connector::handle_waiting`.
  [[nodiscard]] Result<std::optional<connection>> handle_waiting();

  /// For receives that were not posted before.
  [[nodiscard]] queue_pair<rc>& qp() noexcept { return qp_; }
  /// To tell its events; moves on with the next phase.
  [[nodiscard]] const cm::id& cm_id() const noexcept { return end_.one; }

 private:
  friend class resolved;
  friend class incoming;
  connecting(detail::end end, queue_pair<rc> qp, std::vector<std::byte> private_data)
      : end_(std::move(end)), qp_(std::move(qp)), private_data_(std::move(private_data)) {}
  [[nodiscard]] Result<connection> wait(std::chrono::milliseconds at_most,
                                        const std::stop_token& stop = {}) &&;

  detail::end end_;
  queue_pair<rc> qp_;
  std::vector<std::byte> private_data_;  // the request's, on the side that accepts
};

/// Two queue pairs that reach each other. Destroyed, it disconnects.
///
/// Threads: the queue pair's rules for what is posted to it; the rest one at a time.
class connection {
 public:
  connection(connection&& from) noexcept = default;
  connection& operator=(connection&& from) noexcept;
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection();

  /// In RTS, until it is disconnected.
  [[nodiscard]] queue_pair<rc>& qp() noexcept { return qp_; }
  /// Likewise.
  [[nodiscard]] const queue_pair<rc>& qp() const noexcept { return qp_; }
  /// See `id::context`.
  [[nodiscard]] Result<verbs::context> context() const { return end_.one.context(); }
  /// What the peer has said when it connected, or accepted. See `event::private_data`.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept { return private_data_; }
  /// Of this end.
  [[nodiscard]] socket_address local_addr() const noexcept { return end_.one.local_addr(); }
  /// Of the other.
  [[nodiscard]] socket_address peer_addr() const noexcept { return end_.one.peer_addr(); }
  /// For what this class does not have.
  [[nodiscard]] const cm::id& cm_id() const noexcept { return end_.one; }
  /// For logs: as `id::describe`, and whether it is over.
  [[nodiscard]] std::string describe() const;

  /// The queue pair goes to ERR: what is posted completes as flushed. Once more is no error.
  [[nodiscard]] Result<> disconnect();
  /// Whether neither end has disconnected, as far as events have told.
  [[nodiscard]] bool is_connected() const noexcept { return end_.one && !over_; }
  /// Waits until an event tells that one of the ends has disconnected. `timed_out`.
  [[nodiscard]] Result<> wait_disconnected(std::chrono::milliseconds at_most);
  /// Whether the event was this connection's. A peer's disconnect is answered, so the queue pair
  /// goes to ERR; then, when the peer takes back that it has accepted, and when the device is gone,
  /// `is_connected()` is false.
  [[nodiscard]] Result<bool> handle(const event& happened);
  /// Its events come to a shared channel from now on: give them to `handle`.
  [[nodiscard]] Result<> migrate(const event_channel& to);
  /// The descriptor of the channel that it has to itself; -1 where that is shared.
  [[nodiscard]] int event_fd() const noexcept { return end_.own_fd(); }
  /// Takes the events that wait on the channel that it has to itself, without waiting.
  [[nodiscard]] Result<> handle_waiting();

 private:
  friend class connecting;
  connection(detail::end end, queue_pair<rc> qp, std::vector<std::byte> private_data)
      : end_(std::move(end)), qp_(std::move(qp)), private_data_(std::move(private_data)) {}

  detail::end end_;
  queue_pair<rc> qp_;
  std::vector<std::byte> private_data_;
  bool asked_ = false;  // we have disconnected, or answered
  bool over_ = false;
};

}  // namespace verbena::verbs::cm
