// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/result.h"
#include "base/time.h"
#include "cm/core.h"
#include "cm/state.h"
#include "wire/address.h"
#include "wire/cm_message.h"

namespace verbena::cm {

/// Connections, as their messages bring them about and end them: both sides of the state table
/// (`cm/state.h`). What each call does stands with Manager.
class Connections {
 public:
  explicit Connections(Core& core) : core_(core) {}

  [[nodiscard]] Result<ConnectionId> connect(const wire::Path& path, wire::CmReq request, Time now);
  [[nodiscard]] Result<void> accept(ConnectionId id, wire::CmRep reply, Time now);
  [[nodiscard]] Result<void> reject(ConnectionId id, wire::CmRej rejection);
  [[nodiscard]] Result<void> confirm(ConnectionId id, wire::CmRtu ready);
  [[nodiscard]] Result<void> established(ConnectionId id);
  [[nodiscard]] Result<void> disconnect(ConnectionId id, ConstBytes data, Time now);
  void abandon(ConnectionId id, Time now);
  /// Those that the program has not seen.
  void abandon_unseen(ListenerId listener, Time now);

  void handle(const wire::Path& path, const wire::CmMad& mad, Time now);
  void expire(ConnectionId id, Time now);
  [[nodiscard]] bool has(ConnectionId id) const { return connections_.contains(id); }
  [[nodiscard]] std::optional<State> state(ConnectionId id) const;
  [[nodiscard]] std::size_t size() const { return connections_.size(); }
  /// Nothing is kept of any connection.
  [[nodiscard]] bool empty() const {
    return connections_.empty() && by_remote_id_.empty() && by_remote_qp_.empty();
  }

 private:
  struct Connection {
    State state{};
    wire::Path path{};
    ListenerId listener = 0;
    bool abandoned = false;  ///< its events are for nobody
    wire::CmTransport transport{};
    std::uint32_t local_qp = 0;
    std::uint32_t remote_qp = 0;
    std::uint32_t remote_id = 0;
    std::uint64_t transaction = 0;  ///< that our next answer belongs to
    Duration answer_within{};       ///< how long the peer may take for one
    Duration lingers{};             ///< in timewait
    unsigned retries = 0;           ///< of a message that wants an answer
    Repeated sent{};
  };
  using Peer = std::pair<wire::Address, std::uint32_t>;  ///< and a number that it gave
  /// Of a peer that gives a number twice it holds the later connection.
  using Index = std::map<Peer, ConnectionId>;

  // connections.cc: what the messages share.
  [[nodiscard]] Result<Connection*> find(ConnectionId id, Call call);
  [[nodiscard]] Connection* owner(const wire::Path& path, const wire::CmMad& mad, ConnectionId& id);
  void take(ConnectionId id, Connection& connection, const wire::CmMad& mad, Received kind,
            Time now);
  void answer_stranger(const wire::Path& path, const wire::CmMad& mad);
  void begin(ConnectionId id, Connection& connection, State state, const wire::CmMad& mad,
             Time now);
  void tell(EventKind kind, ConnectionId id, const Connection& connection,
            const wire::CmMessage& message);
  void forget(ConnectionId id);
  void drop(Index& index, ConnectionId id, std::uint32_t number);

  // setting_up.cc: REQ, REP, RTU, MRA and REJ.
  void handle_request(const wire::Path& path, const wire::CmMad& mad, Time now);
  [[nodiscard]] std::optional<wire::RejectReason> refusal(const wire::Path& path,
                                                          const wire::CmReq& request) const;
  void take_request(const wire::Path& path, const wire::CmMad& mad, ListenerId listener, Time now);
  void take_reply(ConnectionId id, Connection& connection, const wire::CmMad& mad, Time now);
  void take_ready(ConnectionId id, Connection& connection, const wire::CmMessage& message);
  void take_rejection(ConnectionId id, Connection& connection, const wire::CmRej& rejection,
                      Time now);
  void take_delay(ConnectionId id, Connection& connection, const wire::CmMra& delay, Time now);
  void send_delay(ConnectionId id, const Connection& connection);
  void send_rejection(ConnectionId id, const Connection& connection, wire::CmRej rejection);
  [[nodiscard]] wire::CmRej no_answer() const;

  // ending.cc: DREQ, DREP and timewait.
  void send_disconnect(ConnectionId id, Connection& connection, ConstBytes data, Time now);
  void take_disconnect(ConnectionId id, Connection& connection, const wire::CmMad& mad, Time now);
  void take_disconnected(ConnectionId id, Connection& connection, const wire::CmMessage& message,
                         Time now);
  void send_disconnected(ConnectionId id, Connection& connection, ConstBytes data, Time now);
  void linger(ConnectionId id, Connection& connection, Time now);

  Core& core_;
  std::map<ConnectionId, Connection> connections_{};
  Index by_remote_id_{};
  Index by_remote_qp_{};
};

}  // namespace verbena::cm
