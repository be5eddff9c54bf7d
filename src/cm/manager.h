// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/time.h"
#include "cm/connections.h"
#include "cm/core.h"
#include "cm/service_requests.h"

namespace verbena::cm {

/// The connection manager of a port, or of one process's part of it: who listens, connections as
/// their messages bring them about and end them, and requests for a service's queue pair (SIDR).
/// Sans-IO: management datagrams come in and go out; time and the seed are given.
///
/// A message of a connection is taken only from the address that the connection is with. A peer can
/// make it keep a connection for each REQ, as many as the listener's backlog and max_connections
/// allow, and a bounded number of datagrams that wait to go out.
///
/// After each call, what poll_transmit() and poll_event() give is taken until there is no more. One
/// thread at a time. Errors: invalid_argument where there is no such connection, or it does not
/// stand where that may be asked; not_enough_memory at a limit.
class Manager {
 public:
  Manager(const Config& config, std::uint64_t seed)
      : core_(config, seed), connections_(core_), services_(core_) {}
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  /// address_in_use when that service is listened for at that address.
  [[nodiscard]] Result<ListenerId> listen(const Listening& listening);
  /// Requests that the program has not seen are refused; `id` is a listener.
  void stop_listening(ListenerId id, Time now);
  /// The program has seen that request: it does not wait any more, whatever became of it.
  void handed_over(ConnectionId id);

  /// Sends a REQ along `path`, from here to the peer. The caller gives service, queue pair, PSN,
  /// transport, depths, retries, MTU, the primary path's ACK time-out and rate, and private data;
  /// the rest is filled in.
  [[nodiscard]] Result<ConnectionId> connect(const wire::Path& path, const wire::CmReq& request,
                                             Time now);
  /// Sends a REP: the caller gives queue pair (in `local_qp`, for XRC as well), PSN, depths,
  /// retries and private data.
  [[nodiscard]] Result<void> accept(ConnectionId id, const wire::CmRep& reply, Time now);
  /// Sends a REJ: the caller gives reason, information and private data. The connection is gone.
  [[nodiscard]] Result<void> reject(ConnectionId id, const wire::CmRej& rejection);
  /// Sends the RTU, with the caller's private data: the queue pair is ready to send.
  [[nodiscard]] Result<void> confirm(ConnectionId id, const wire::CmRtu& ready);
  /// Data came on the queue pair before the RTU; nothing to do once that came.
  [[nodiscard]] Result<void> established(ConnectionId id);
  /// Sends a DREQ, or the DREP when one is asked for, with at most 220 bytes of private data.
  /// Nothing when a DREQ is under way.
  [[nodiscard]] Result<void> disconnect(ConnectionId id, ConstBytes data, Time now);

  /// Sends a SIDR REQ: the caller gives service and private data.
  [[nodiscard]] Result<ConnectionId> resolve(const wire::Path& path, const wire::CmSidrReq& request,
                                             Time now);
  /// Sends a SIDR REP: the caller gives status, queue pair, Q_Key, information and private data.
  [[nodiscard]] Result<void> answer(ConnectionId id, const wire::CmSidrRep& reply, Time now);

  /// Nobody waits for its events any more: it is ended in order, however it stands, and then gone.
  /// Nothing when it is gone.
  void abandon(ConnectionId id, Time now);

  /// A datagram that came to queue pair 1 along `path`, whatever its bytes.
  void handle_datagram(const wire::Path& path, ConstBytes mad, Time now);
  void handle_timeout(Time now);
  /// When handle_timeout() has something to do, or Time::max().
  [[nodiscard]] Time poll_timeout() const { return core_.poll_timeout(); }
  [[nodiscard]] std::optional<Outgoing> poll_transmit() { return core_.poll_transmit(); }
  [[nodiscard]] std::optional<Event> poll_event() { return core_.poll_event(); }

  [[nodiscard]] const Counters& counters() const { return core_.counters; }
  /// Connections and service requests that are not gone.
  [[nodiscard]] std::size_t size() const { return connections_.size() + services_.size(); }
  /// Nothing is kept of anything but who listens.
  [[nodiscard]] bool empty() const {
    return connections_.empty() && services_.empty() && core_.empty();
  }
  /// Nothing when there is no such connection.
  [[nodiscard]] std::optional<State> state(ConnectionId id) const { return connections_.state(id); }

 private:
  Core core_;
  Connections connections_;
  ServiceRequests services_;
};

}  // namespace verbena::cm
