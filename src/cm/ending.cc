// SPDX-License-Identifier: Apache-2.0
//
// The end of a connection: DREQ and DREP, and the time in which packets of it may still come.
#include <algorithm>

#include "cm/connections.h"
#include "cm/mutants.h"

namespace verbena::cm {
namespace {

template <std::size_t kSize>
void copy(ConstBytes from, wire::PrivateData<kSize>& to) {
  std::copy_n(from.begin(), std::min(from.size(), kSize), to.begin());
}

}  // namespace

Result<void> Connections::disconnect(ConnectionId id, ConstBytes data, Time now) {
  Connection& connection = *VERBENA_TRY(find(id, Call::kDisconnect));
  if (data.size() > wire::CmDreq{}.private_data.size() && !mutant(Mutant::kLongDataCutOff))
    return fail(std::errc::invalid_argument, "a DREQ carries at most 220 bytes");
  // The peer began anew, and it is being ended already.
  if (connection.state == State::kDreqSent) return {};
  if (connection.state == State::kDreqReceived) {
    send_disconnected(id, connection, data, now);
  } else {
    send_disconnect(id, connection, data, now);
  }
  return {};
}

void Connections::send_disconnect(ConnectionId id, Connection& connection, ConstBytes data,
                                  Time now) {
  wire::CmDreq request{
      .local_id = id, .remote_id = connection.remote_id, .remote_qp = connection.remote_qp};
  copy(data, request.private_data);
  begin(id, connection, State::kDreqSent,
        {.transaction = core_.new_transaction(), .message = request}, now);
}

/// When both sides end it at once each answers the other, and for both it is over.
void Connections::take_disconnect(ConnectionId id, Connection& connection, const wire::CmMad& mad,
                                  Time now) {
  if (std::get<wire::CmDreq>(mad.message).remote_qp != connection.local_qp &&
      !mutant(Mutant::kAnyQueuePairEnds)) {
    ++core_.counters.malformed;
    return;
  }
  core_.unschedule(id, connection.sent);
  connection.transaction = mad.transaction;
  const bool asked = connection.state == State::kDreqSent;
  connection.state = State::kDreqReceived;
  if (!asked) return tell(EventKind::kDisconnecting, id, connection, mad.message);
  tell(EventKind::kDisconnected, id, connection, mad.message);
  send_disconnected(id, connection, {}, now);
}

void Connections::send_disconnected(ConnectionId id, Connection& connection, ConstBytes data,
                                    Time now) {
  wire::CmDrep reply{.local_id = id, .remote_id = connection.remote_id};
  copy(data, reply.private_data);
  connection.sent = {.mad = {.transaction = connection.transaction, .message = reply}};
  core_.send(connection.path, connection.sent.mad);
  linger(id, connection, now);
}

void Connections::take_disconnected(ConnectionId id, Connection& connection,
                                    const wire::CmMessage& message, Time now) {
  tell(EventKind::kDisconnected, id, connection, message);
  linger(id, connection, now);
}

/// A DREQ that comes now gets a DREP, whichever side's was the first. The peer may connect its
/// queue pair anew.
void Connections::linger(ConnectionId id, Connection& connection, Time now) {
  if (mutant(Mutant::kTimewaitSkipped)) return forget(id);
  core_.unschedule(id, connection.sent);
  drop(by_remote_qp_, id, connection.remote_qp);
  connection.state = State::kTimewait;
  if (!std::holds_alternative<wire::CmDrep>(connection.sent.mad.message)) {
    connection.sent.mad.message = wire::CmDrep{.local_id = id, .remote_id = connection.remote_id};
  }
  if (mutant(Mutant::kTimewaitForever)) return;
  core_.schedule(id, connection.sent, now + connection.lingers);
}

}  // namespace verbena::cm
