// SPDX-License-Identifier: Apache-2.0
#include "cm/connections.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "cm/mutants.h"

namespace verbena::cm {
namespace {

/// DREQs that are sent again for a connection that nobody cares for any more.
constexpr unsigned kParting = 3;

std::optional<Received> received(const wire::CmMessage& message) {
  struct Kind {
    std::optional<Received> operator()(const wire::CmReq&) const { return Received::kReq; }
    std::optional<Received> operator()(const wire::CmMra&) const { return Received::kMra; }
    std::optional<Received> operator()(const wire::CmRej&) const { return Received::kRej; }
    std::optional<Received> operator()(const wire::CmRep&) const { return Received::kRep; }
    std::optional<Received> operator()(const wire::CmRtu&) const { return Received::kRtu; }
    std::optional<Received> operator()(const wire::CmDreq&) const { return Received::kDreq; }
    std::optional<Received> operator()(const wire::CmDrep&) const { return Received::kDrep; }
    std::optional<Received> operator()(const wire::CmLap&) const { return Received::kLap; }
    std::optional<Received> operator()(const wire::CmApr&) const { return std::nullopt; }
    std::optional<Received> operator()(const wire::CmSidrReq&) const { return std::nullopt; }
    std::optional<Received> operator()(const wire::CmSidrRep&) const { return std::nullopt; }
  };
  return std::visit(Kind{}, message);
}

/// The communication IDs that a message of a connection names.
struct Ids {
  std::uint32_t sender = 0;
  std::uint32_t receiver = 0;  ///< 0: it does not know ours
};

Ids ids(const wire::CmMessage& message) {
  return std::visit(
      [](const auto& one) -> Ids {
        if constexpr (requires { one.remote_id; }) return {one.local_id, one.remote_id};
        return {};
      },
      message);
}

}  // namespace

Result<Connections::Connection*> Connections::find(ConnectionId id, Call call) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.abandoned)
    return fail(std::errc::invalid_argument, fmt::format("there is no connection {:#x}", id));
  if (!may(found->second.state, call) && !mutant(Mutant::kAnyCallAnytime)) {
    return fail(std::errc::invalid_argument,
                fmt::format("the connection is in state '{}'", to_string(found->second.state)));
  }
  return &found->second;
}

std::optional<State> Connections::state(ConnectionId id) const {
  const auto found = connections_.find(id);
  return found == connections_.end() ? std::nullopt : std::optional(found->second.state);
}

void Connections::handle(const wire::Path& path, const wire::CmMad& mad, Time now) {
  const std::optional<Received> kind = received(mad.message);
  if (!kind) {
    ++core_.counters.unexpected;
  } else if (*kind == Received::kReq) {
    handle_request(path, mad, now);
  } else if (ConnectionId id = 0; Connection* const connection = owner(path, mad, id)) {
    take(id, *connection, mad, *kind, now);
  } else {
    answer_stranger(path, mad);
  }
}

/// Whose message it is. It has to come from the address that the connection is with, and from the
/// connection there that ours is with, as far as that is known. Who gives up a REQ may have heard
/// of no ID of ours.
Connections::Connection* Connections::owner(const wire::Path& path, const wire::CmMad& mad,
                                            ConnectionId& id) {
  const Ids named = ids(mad.message);
  id = named.receiver;
  if (id == 0 && std::holds_alternative<wire::CmRej>(mad.message)) {
    const auto known = by_remote_id_.find({path.source, named.sender});
    if (known != by_remote_id_.end()) id = known->second;
  }
  const auto found = connections_.find(id);
  if (found == connections_.end()) return nullptr;
  Connection& connection = found->second;
  const bool theirs = path.source == connection.path.destination &&
                      (connection.remote_id == 0 || connection.remote_id == named.sender);
  return theirs || mutant(Mutant::kStrangerIsHeard) ? &connection : nullptr;
}

void Connections::take(ConnectionId id, Connection& connection, const wire::CmMad& mad,
                       Received kind, Time now) {
  switch (action(connection.state, kind)) {
    case Action::kTake: break;
    case Action::kDelay: return send_delay(id, connection);
    case Action::kRepeatReply:
      if (mutant(Mutant::kReplyNotRepeated)) return;
      ++core_.counters.sent_again;
      connection.sent.mad.transaction = mad.transaction;
      return core_.send(connection.path, connection.sent.mad);
    case Action::kRefuseLap:
      return core_.send(connection.path,
                        {.transaction = mad.transaction,
                         .message = wire::CmApr{.local_id = id,
                                                .remote_id = connection.remote_id,
                                                .status = wire::CmApr::kUnsupported}});
    case Action::kRejectStale:
    case Action::kIgnore: ++core_.counters.unexpected; return;
  }
  switch (kind) {
    case Received::kMra: return take_delay(id, connection, std::get<wire::CmMra>(mad.message), now);
    case Received::kRej:
      return take_rejection(id, connection, std::get<wire::CmRej>(mad.message), now);
    case Received::kRep: return take_reply(id, connection, mad, now);
    case Received::kRtu: return take_ready(id, connection, mad.message);
    case Received::kDreq: return take_disconnect(id, connection, mad, now);
    case Received::kDrep: return take_disconnected(id, connection, mad.message, now);
    case Received::kReq:
    case Received::kLap: break;
  }
}

/// About a connection that nobody here knows, whose process may have died: who waits for an answer
/// gets one, and who believes to be connected learns that it is not.
void Connections::answer_stranger(const wire::Path& path, const wire::CmMad& mad) {
  ++core_.counters.unexpected;
  const wire::Path back = reversed(path);
  const auto reject = [&](const auto& message, wire::CmSubject subject) {
    core_.send(back,
               {.transaction = mad.transaction,
                .message = wire::CmRej{.local_id = message.remote_id,
                                       .remote_id = message.local_id,
                                       .subject = subject,
                                       .reason = wire::RejectReason::kInvalidCommunicationId}});
  };
  if (const auto* reply = std::get_if<wire::CmRep>(&mad.message)) {
    reject(*reply, wire::CmSubject::kRep);
  } else if (const auto* ready = std::get_if<wire::CmRtu>(&mad.message)) {
    reject(*ready, wire::CmSubject::kOther);
  } else if (const auto* request = std::get_if<wire::CmDreq>(&mad.message)) {
    core_.send(back, {.transaction = mad.transaction,
                      .message = wire::CmDrep{.local_id = request->remote_id,
                                              .remote_id = request->local_id}});
  }
}

/// Sends what wants an answer, in a state that waits for it.
void Connections::begin(ConnectionId id, Connection& connection, State state,
                        const wire::CmMad& mad, Time now) {
  core_.unschedule(id, connection.sent);
  connection.state = state;
  connection.sent = {
      .mad = mad, .interval = connection.answer_within, .retries = connection.retries};
  core_.send_until_answered(id, connection.path, connection.sent, now);
}

void Connections::expire(ConnectionId id, Time now) {
  Connection& connection = connections_.at(id);
  core_.unschedule(id, connection.sent);
  if (connection.state == State::kTimewait) {
    tell(EventKind::kTimewaitOver, id, connection, connection.sent.mad.message);
    return forget(id);
  }
  if (core_.send_again(id, connection.path, connection.sent, now)) {
    // Each time may be asked for patience once.
    if (connection.state == State::kMraReqReceived) connection.state = State::kReqSent;
    if (connection.state == State::kMraRepReceived) connection.state = State::kRepSent;
    return;
  }
  if (connection.state == State::kDreqSent)
    return take_disconnected(id, connection, connection.sent.mad.message, now);
  send_rejection(id, connection, no_answer());
  tell(EventKind::kUnreachable, id, connection, connection.sent.mad.message);
  forget(id);
}

void Connections::abandon(ConnectionId id, Time now) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.abandoned = true;
  switch (connection.state) {
    case State::kReqSent:
    case State::kMraReqReceived: send_rejection(id, connection, no_answer()); return forget(id);
    case State::kRepReceived:
    case State::kReqReceived:
    case State::kRepSent:
    case State::kMraRepReceived:
      send_rejection(id, connection, {.reason = wire::RejectReason::kConsumer});
      return forget(id);
    case State::kEstablished:
      // In our own time: nobody waits for it, and the peer shall not say how long it is kept.
      connection.answer_within = core_.answer_within(core_.config().response_timeout);
      connection.retries = std::min(connection.retries, kParting);
      return send_disconnect(id, connection, {}, now);
    case State::kDreqReceived: return send_disconnected(id, connection, {}, now);
    case State::kDreqSent:
    case State::kTimewait: return;
  }
}

void Connections::abandon_unseen(ListenerId listener, Time now) {
  std::vector<ConnectionId> unseen;
  for (const auto& [id, connection] : connections_) {
    if (connection.listener == listener && core_.listeners.waits(id)) unseen.push_back(id);
  }
  for (const ConnectionId id : unseen) abandon(id, now);
}

void Connections::tell(EventKind kind, ConnectionId id, const Connection& connection,
                       const wire::CmMessage& message) {
  if (connection.abandoned) return;
  core_.tell({.kind = kind,
              .id = id,
              .listener = connection.listener,
              .path = connection.path,
              .message = message});
}

void Connections::forget(ConnectionId id) {
  const auto found = connections_.find(id);
  Connection& connection = found->second;
  core_.unschedule(id, connection.sent);
  drop(by_remote_id_, id, connection.remote_id);
  drop(by_remote_qp_, id, connection.remote_qp);
  connections_.erase(found);
  core_.free_id(id);
}

void Connections::drop(Index& index, ConnectionId id, std::uint32_t number) {
  const auto entry = index.find({connections_.at(id).path.destination, number});
  if (entry != index.end() && entry->second == id) index.erase(entry);
}

}  // namespace verbena::cm
