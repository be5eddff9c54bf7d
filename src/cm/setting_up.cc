// SPDX-License-Identifier: Apache-2.0
//
// The messages that make a connection: REQ, REP and RTU; MRA, which asks for patience; and REJ.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cm/connections.h"
#include "cm/mutants.h"

namespace verbena::cm {
namespace {

// What a peer may make us wait, whatever it says: an answer, the thinking of its program, the end
// of what may still be under way.
constexpr std::uint8_t kLongestAnswer = 22;   // 17 s
constexpr std::uint8_t kLongestService = 24;  // 69 s
constexpr std::uint8_t kLongestLinger = 20;   // 4.3 s
constexpr std::uint8_t kMtuCodes = 5;

/// Whether a second REQ with the same queue pair means that the first connection is over. XRC's
/// initiators share targets, and datagrams have no connection.
bool owns_queue_pair(wire::CmTransport transport) {
  return transport == wire::CmTransport::kRc || transport == wire::CmTransport::kUc;
}

/// XRC's targets have their number where a REP has an end-to-end context's (Linux's `cm.c`).
std::uint32_t& queue_pair_of(wire::CmRep& reply, wire::CmTransport transport) {
  return transport == wire::CmTransport::kExtended ? reply.local_eec : reply.local_qp;
}

/// In timewait.
Duration lingering(const wire::CmReq& request) {
  if (mutant(Mutant::kPeerSaysHowLong)) return duration_of(request.primary.local_ack_timeout);
  return duration_of(std::min(request.primary.local_ack_timeout, kLongestLinger));
}

wire::CmSubject subject_of(State state) {
  switch (state) {
    case State::kReqReceived: return wire::CmSubject::kReq;
    case State::kRepReceived: return wire::CmSubject::kRep;
    default: return wire::CmSubject::kOther;
  }
}

}  // namespace

Result<ConnectionId> Connections::connect(const wire::Path& path, wire::CmReq request, Time now) {
  const ConnectionId id = VERBENA_TRY(core_.new_id());
  const Config& config = core_.config();
  request.local_id = id;
  request.local_ca_guid = config.ca_guid;
  request.remote_response_timeout = request.local_response_timeout = config.response_timeout;
  request.max_cm_retries = config.retries;
  request.primary.local_gid = path.source;
  request.primary.remote_gid = path.destination;
  request.primary.traffic_class = path.traffic_class;
  request.primary.flow_label = path.flow_label;
  request.primary.hop_limit = path.hop_limit;
  Connection& connection = connections_[id];
  connection.path = path;
  connection.transport = request.transport;
  connection.local_qp = request.local_qp;
  connection.answer_within = core_.answer_within(config.response_timeout);
  connection.lingers = lingering(request);
  connection.retries = config.retries;
  begin(id, connection, State::kReqSent,
        {.transaction = core_.new_transaction(), .message = request}, now);
  return id;
}

void Connections::handle_request(const wire::Path& path, const wire::CmMad& mad, Time now) {
  const auto& request = std::get<wire::CmReq>(mad.message);
  const wire::Path back = reversed(path);
  const auto refuse = [&](wire::RejectReason reason) {
    ++core_.counters.refused;
    core_.send(back, {.transaction = mad.transaction,
                      .message = wire::CmRej{.remote_id = request.local_id, .reason = reason}});
  };
  const auto known = by_remote_id_.find({path.source, request.local_id});
  if (known != by_remote_id_.end() && !mutant(Mutant::kRepeatedReqIsNew)) {
    Connection& connection = connections_.at(known->second);
    if (action(connection.state, Received::kReq) == Action::kRejectStale)
      return refuse(wire::RejectReason::kStaleConnection);
    return take(known->second, connection, mad, Received::kReq, now);
  }
  if (const auto reason = refusal(path, request)) return refuse(*reason);
  const auto stale = by_remote_qp_.find({path.source, request.local_qp});
  if (owns_queue_pair(request.transport) && stale != by_remote_qp_.end() &&
      !mutant(Mutant::kStaleConnectionStays)) {
    // The peer has begun anew, and what it had is over; it tries again when we know as well.
    refuse(wire::RejectReason::kStaleConnection);
    Connection& connection = connections_.at(stale->second);
    if (connection.state == State::kEstablished)
      send_disconnect(stale->second, connection, {}, now);
    return;
  }
  const ListenerId listener =
      core_.listeners.find(request.service_id, path.destination, RequestKind::kConnection);
  if (listener == 0) return refuse(wire::RejectReason::kInvalidServiceId);
  take_request(path, mad, listener, now);
}

/// What a REQ may not say.
std::optional<wire::RejectReason> Connections::refusal(const wire::Path& path,
                                                       const wire::CmReq& request) const {
  using enum wire::RejectReason;
  const bool extended = request.transport == wire::CmTransport::kExtended;
  if (request.transport == wire::CmTransport::kRd ||
      (extended && request.extended_transport != wire::kCmExtendedXrc))
    return kInvalidTransport;
  // Else our queue pair would be led to somebody who asked for nothing.
  const bool right =
      request.primary.local_gid == path.source && request.primary.remote_gid == path.destination;
  if (!right && !mutant(Mutant::kAddressesUnchecked)) return kInvalidGid;
  if (request.path_mtu == 0 || request.path_mtu > kMtuCodes) return kInvalidMtu;
  return std::nullopt;
}

/// With a full backlog, or at the limit, it is as if the REQ were lost: the peer tries again.
void Connections::take_request(const wire::Path& path, const wire::CmMad& mad, ListenerId listener,
                               Time now) {
  const auto id = core_.new_id_for_peer(listener, now);
  if (!id) return;
  const auto& request = std::get<wire::CmReq>(mad.message);
  Connection& connection = connections_[*id];
  connection.state = State::kReqReceived;
  connection.path = reversed(path);
  connection.path.traffic_class = request.primary.traffic_class;
  connection.path.flow_label = request.primary.flow_label;
  connection.listener = listener;
  connection.transport = request.transport;
  connection.remote_id = request.local_id;
  connection.remote_qp = request.local_qp;
  connection.transaction = mad.transaction;
  connection.answer_within =
      core_.answer_within(std::min(request.local_response_timeout, kLongestAnswer));
  connection.lingers = lingering(request);
  connection.retries = request.max_cm_retries;
  by_remote_id_[{path.source, request.local_id}] = *id;
  if (owns_queue_pair(request.transport)) by_remote_qp_[{path.source, request.local_qp}] = *id;
  tell(EventKind::kRequested, *id, connection, mad.message);
}

Result<void> Connections::accept(ConnectionId id, wire::CmRep reply, Time now) {
  Connection& connection = *VERBENA_TRY(find(id, Call::kAccept));
  core_.listeners.seen(id);
  connection.local_qp = std::exchange(reply.local_qp, 0);
  queue_pair_of(reply, connection.transport) = connection.local_qp;
  reply.local_id = id;
  reply.remote_id = connection.remote_id;
  reply.local_ca_guid = core_.config().ca_guid;
  begin(id, connection, State::kRepSent, {.transaction = connection.transaction, .message = reply},
        now);
  return {};
}

void Connections::take_reply(ConnectionId id, Connection& connection, const wire::CmMad& mad,
                             Time now) {
  auto reply = std::get<wire::CmRep>(mad.message);
  const std::uint32_t remote_qp = queue_pair_of(reply, connection.transport);
  const Peer peer{connection.path.destination, remote_qp};
  const auto stale = by_remote_qp_.find(peer);
  if (owns_queue_pair(connection.transport) && stale != by_remote_qp_.end()) {
    // The peer has begun anew, and what was connected to that number is over. The REQ goes again.
    core_.send(connection.path,
               {.transaction = mad.transaction,
                .message = wire::CmRej{.local_id = id,
                                       .remote_id = reply.local_id,
                                       .subject = wire::CmSubject::kRep,
                                       .reason = wire::RejectReason::kStaleConnection}});
    Connection& old = connections_.at(stale->second);
    if (old.state == State::kEstablished) send_disconnect(stale->second, old, {}, now);
    return;
  }
  core_.unschedule(id, connection.sent);
  connection.remote_id = reply.local_id;
  connection.remote_qp = remote_qp;
  connection.transaction = mad.transaction;
  connection.state = State::kRepReceived;
  by_remote_id_[{connection.path.destination, reply.local_id}] = id;
  if (owns_queue_pair(connection.transport)) by_remote_qp_[peer] = id;
  tell(EventKind::kReplied, id, connection, mad.message);
}

Result<void> Connections::confirm(ConnectionId id, wire::CmRtu ready) {
  Connection& connection = *VERBENA_TRY(find(id, Call::kConfirm));
  ready.local_id = id;
  ready.remote_id = connection.remote_id;
  connection.state = State::kEstablished;
  connection.sent = {.mad = {.transaction = connection.transaction, .message = ready}};
  core_.send(connection.path, connection.sent.mad);
  return {};
}

void Connections::take_ready(ConnectionId id, Connection& connection,
                             const wire::CmMessage& message) {
  core_.unschedule(id, connection.sent);
  connection.state = State::kEstablished;
  tell(EventKind::kEstablished, id, connection, message);
}

Result<void> Connections::established(ConnectionId id) {
  Connection& connection = *VERBENA_TRY(find(id, Call::kEstablished));
  if (connection.state != State::kEstablished)
    take_ready(id, connection, connection.sent.mad.message);
  return {};
}

void Connections::take_delay(ConnectionId id, Connection& connection, const wire::CmMra& delay,
                             Time now) {
  if (mutant(Mutant::kPatienceIgnored)) return;
  const bool request =
      connection.state == State::kReqSent || connection.state == State::kMraReqReceived;
  if (delay.subject != (request ? wire::CmSubject::kReq : wire::CmSubject::kRep)) return;
  connection.state = request ? State::kMraReqReceived : State::kMraRepReceived;
  const std::uint8_t service = std::min(delay.service_timeout, kLongestService);
  connection.sent.pause = connection.sent.interval;  // it is there
  core_.schedule(id, connection.sent, now + core_.answer_within(service));
}

void Connections::send_delay(ConnectionId id, const Connection& connection) {
  core_.send(connection.path,
             {.transaction = connection.transaction,
              .message = wire::CmMra{.local_id = id,
                                     .remote_id = connection.remote_id,
                                     .subject = subject_of(connection.state),
                                     .service_timeout = core_.config().service_timeout}});
}

Result<void> Connections::reject(ConnectionId id, wire::CmRej rejection) {
  Connection& connection = *VERBENA_TRY(find(id, Call::kReject));
  core_.listeners.seen(id);
  send_rejection(id, connection, rejection);
  forget(id);
  return {};
}

/// Fills in the connection's numbers and what is rejected.
void Connections::send_rejection(ConnectionId id, const Connection& connection,
                                 wire::CmRej rejection) {
  rejection.local_id = id;
  rejection.remote_id = connection.remote_id;
  rejection.subject = subject_of(connection.state);
  const bool ours =
      connection.state == State::kReqSent || connection.state == State::kMraReqReceived;
  core_.send(connection.path,
             {.transaction = ours ? connection.sent.mad.transaction : connection.transaction,
              .message = rejection});
}

/// Names the channel adapter, by which a peer that knows no ID of ours finds its connection.
wire::CmRej Connections::no_answer() const {
  wire::CmRej rejection{.reason = wire::RejectReason::kTimeout};
  rejection.info_length = sizeof(std::uint64_t);
  store_be<std::uint64_t>(rejection.info.data(), core_.config().ca_guid);
  return rejection;
}

void Connections::take_rejection(ConnectionId id, Connection& connection,
                                 const wire::CmRej& rejection, Time now) {
  // Of a request that the program has not seen it is told nothing more.
  if (!core_.listeners.waits(id)) tell(EventKind::kRejected, id, connection, rejection);
  switch (connection.state) {
    case State::kEstablished:
    case State::kDreqSent: return linger(id, connection, now);
    default: return forget(id);
  }
}

}  // namespace verbena::cm
