// SPDX-License-Identifier: Apache-2.0
#include "cm/manager.h"

namespace verbena::cm {

Result<ListenerId> Manager::listen(const Listening& listening) {
  return core_.listeners.add(listening);
}

void Manager::stop_listening(ListenerId id, Time now) {
  connections_.abandon_unseen(id, now);
  services_.abandon_unseen(id, now);
  core_.listeners.remove(id);
}

void Manager::handed_over(ConnectionId id) { core_.listeners.seen(id); }

Result<ConnectionId> Manager::connect(const wire::Path& path, const wire::CmReq& request,
                                      Time now) {
  return connections_.connect(path, request, now);
}

Result<void> Manager::accept(ConnectionId id, const wire::CmRep& reply, Time now) {
  return connections_.accept(id, reply, now);
}

Result<void> Manager::reject(ConnectionId id, const wire::CmRej& rejection) {
  return connections_.reject(id, rejection);
}

Result<void> Manager::confirm(ConnectionId id, const wire::CmRtu& ready) {
  return connections_.confirm(id, ready);
}

Result<void> Manager::established(ConnectionId id) { return connections_.established(id); }

Result<void> Manager::disconnect(ConnectionId id, ConstBytes data, Time now) {
  return connections_.disconnect(id, data, now);
}

Result<ConnectionId> Manager::resolve(const wire::Path& path, const wire::CmSidrReq& request,
                                      Time now) {
  return services_.resolve(path, request, now);
}

Result<void> Manager::answer(ConnectionId id, const wire::CmSidrRep& reply, Time now) {
  return services_.answer(id, reply, now);
}

void Manager::abandon(ConnectionId id, Time now) {
  core_.listeners.seen(id);
  connections_.abandon(id, now);
  services_.abandon(id, now);
}

void Manager::handle_datagram(const wire::Path& path, ConstBytes mad, Time now) {
  ++core_.counters.received;
  const auto parsed = wire::parse_cm(mad);
  if (!parsed) {
    ++core_.counters.malformed;
  } else if (std::holds_alternative<wire::CmSidrReq>(parsed->message)) {
    services_.handle_request(path, *parsed, now);
  } else if (std::holds_alternative<wire::CmSidrRep>(parsed->message)) {
    services_.handle_reply(path, *parsed);
  } else {
    connections_.handle(path, *parsed, now);
  }
}

void Manager::handle_timeout(Time now) {
  while (const auto id = core_.next_due(now)) {
    if (connections_.has(*id)) {
      connections_.expire(*id, now);
    } else {
      services_.expire(*id, now);
    }
  }
}

}  // namespace verbena::cm
