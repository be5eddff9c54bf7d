// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/incoming.h"

#include <cerrno>
#include <optional>
#include <span>
#include <variant>

#include "compat/rdma_cm/connecting.h"
#include "compat/rdma_cm/datagrams.h"
#include "compat/rdma_cm/events.h"
#include "compat/rdma_cm/route.h"
#include "wire/cm_message.h"

namespace verbena::compat::rdma_cm {
namespace {

constexpr auto kHeaderSize = wire::CmAddressHeader::kSize;

ConstBytes behind_header(ConstBytes data) { return data.subspan(kHeaderSize); }

/// The addresses that a request is between; nothing when they are not those that it came between,
/// or of another family than the listener takes.
std::optional<wire::CmAddressHeader> addresses_of(const Id& listener, const wire::Path& path,
                                                  ConstBytes data) {
  const auto header = wire::CmAddressHeader::parse(data.data());
  if (!header || header->destination != path.source) return std::nullopt;
  const bool takes_both = listener.source.family == AF_INET6 && listener.source.is_any() &&
                          !listener.family_only.value_or(false);
  const bool right = header->destination.is_ipv4() == (listener.source.family == AF_INET);
  return takes_both || right ? header : std::nullopt;
}

ibv_qp_type type_of(const wire::CmReq& request) {
  switch (request.transport) {
    case wire::CmTransport::kUc: return IBV_QPT_UC;
    case wire::CmTransport::kExtended: return IBV_QPT_XRC_RECV;
    default: return IBV_QPT_RC;
  }
}

/// A new id for the request, which the program is told of later.
Id* add_request(Agent& agent, Port& port, Id& listener, const cm::Event& event,
                const wire::CmAddressHeader& header) {
  const auto added = add_id(agent, *listener.file, listener.space, listener.qp_type);
  if (!added) return nullptr;
  Id& id = **added;
  const sa_family_t family = header.destination.is_ipv4() ? AF_INET : AF_INET6;
  id.source = {.family = family, .address = header.destination, .port = listener.source.port};
  id.destination = {.family = family, .address = header.source, .port = header.source_port};
  id.port = &port;
  id.type_of_service = event.path.traffic_class;
  id.state = IdState::kConnect;
  id.requested = true;
  id.passive = true;
  id.seen = false;
  id.connection = event.id;
  port.connections[event.id] = &id;
  return &id;
}

/// A peer's depths are the other way round for us (cm.c's event parameters).
template <typename Message>
rdma_ucm_conn_param parameters_of(const Message& message, std::uint32_t remote_qp) {
  rdma_ucm_conn_param to{};
  to.qp_num = remote_qp;
  to.srq = message.shared_receive_queue ? 1 : 0;
  to.responder_resources = message.initiator_depth;
  to.initiator_depth = message.responder_resources;
  to.flow_control = message.end_to_end_flow_control ? 1 : 0;
  to.rnr_retry_count = message.rnr_retry_count;
  return to;
}

rdma_ucm_ece to_abi(const wire::CmEce& ece) {
  return {.vendor_id = ece.vendor_id, .attr_mod = ece.options};
}

/// With the route known. A peer that names no ACK time-out gets the shortest, as by cm.c: none at
/// all would be an endless one.
void agree(Id& id, const wire::CmReq& request) {
  id.agreement = {.remote_qp = request.local_qp,
                  .send_psn = request.starting_psn,
                  .responder_resources = request.initiator_depth,
                  .initiator_depth = request.responder_resources,
                  .retry_count = request.retry_count,
                  .rnr_retry_count = request.rnr_retry_count,
                  .timeout = static_cast<std::uint8_t>(id.route.packet_lifetime + 1)};
}

void take_connect_request(Agent& agent, Port& port, Id& listener, const cm::Event& event) {
  const auto& request = std::get<wire::CmReq>(event.message);
  const auto header = addresses_of(listener, event.path, request.private_data);
  Id* const id = header && type_of(request) == listener.qp_type
                     ? add_request(agent, port, listener, event, *header)
                     : nullptr;
  if (id == nullptr) {
    ask(port, [&](cm::Manager& manager, Time now) { manager.abandon(event.id, now); });
    return;
  }
  id->route = route_of(request, event.path);
  id->has_route = true;
  agree(*id, request);
  rdma_ucm_event_resp response = telling({.what = Happened::kConnectRequest});
  response.param.conn = parameters_of(request, request.local_qp);
  response.param.conn.retry_count = request.retry_count;
  response.ece = to_abi(request.ece);
  set_private_data(response.param.conn, behind_header(request.private_data));
  tell_request(listener, *id, response);
}

void take_service_request(Agent& agent, Port& port, Id& listener, const cm::Event& event) {
  const auto& request = std::get<wire::CmSidrReq>(event.message);
  const auto header = addresses_of(listener, event.path, request.private_data);
  Id* const id = header ? add_request(agent, port, listener, event, *header) : nullptr;
  if (id == nullptr) {
    ask(port, [&](cm::Manager& manager, Time now) { manager.abandon(event.id, now); });
    return;
  }
  rdma_ucm_event_resp response = telling({.what = Happened::kConnectRequest});
  set_private_data(response.param.ud, behind_header(request.private_data));
  tell_request(listener, *id, response);
}

void take_reply(Id& id, const wire::CmRep& reply) {
  const std::uint32_t remote_qp = id.qp_type == IBV_QPT_XRC_SEND ? reply.local_eec : reply.local_qp;
  id.agreement.remote_qp = remote_qp;
  id.agreement.send_psn = reply.starting_psn;
  id.agreement.responder_resources = reply.initiator_depth;
  id.agreement.initiator_depth = reply.responder_resources;
  id.agreement.rnr_retry_count = reply.rnr_retry_count;
  id.agreement.timeout = ack_timeout(reply.target_ack_delay, id.route.packet_lifetime);
  rdma_ucm_event_resp response = telling({.what = Happened::kConnectResponse});
  response.param.conn = parameters_of(reply, remote_qp);
  response.ece = to_abi(reply.ece);
  set_private_data(response.param.conn, reply.private_data);
  tell(id, response);
}

/// Of enhanced connections the kernel says nothing here, though it sends what it is told.
void take_service_reply(Id& id, const wire::CmSidrRep& reply) {
  rdma_ucm_event_resp response{};
  if (reply.status != wire::SidrStatus::kValid) {
    response = telling(
        {.what = Happened::kUnreachable, .status = static_cast<std::int32_t>(reply.status)});
  } else if (!set_queue_key(id, reply.qkey)) {
    response = telling({.what = Happened::kAddressError, .status = -EINVAL});
  } else {
    response = telling({.what = Happened::kEstablished});
    response.param.ud.qp_num = reply.qp;
    response.param.ud.qkey = reply.qkey;
    response.param.ud.ah_attr = to_address_vector(id, id.route);
  }
  set_private_data(response.param.ud, reply.private_data);
  tell(id, response);
}

/// Nobody answered our DREQ: what the manager shows then is that one.
bool unanswered(const cm::Event& event) {
  const auto* const request = std::get_if<wire::CmDreq>(&event.message);
  return request != nullptr && request->local_id == event.id;
}

/// As cma.c: an id that is disconnected is told only that it is over, and no other is.
void take_end(Id& id, const cm::Event& event) {
  if (event.kind == cm::EventKind::kTimewaitOver) {
    if (id.state == IdState::kDisconnect) tell(id, telling({.what = Happened::kTimewaitExit}));
    return;
  }
  if (id.state != IdState::kConnect) return;
  switch (event.kind) {
    case cm::EventKind::kRejected: {
      const auto& rejection = std::get<wire::CmRej>(event.message);
      rdma_ucm_event_resp response = telling(
          {.what = Happened::kRejected, .status = static_cast<std::int32_t>(rejection.reason)});
      set_private_data(response.param.conn, rejection.private_data);
      return tell(id, response);
    }
    case cm::EventKind::kDisconnecting:
    case cm::EventKind::kDisconnected:
      id.state = IdState::kDisconnect;
      return tell(id, telling({.what = Happened::kDisconnected,
                               .status = unanswered(event) ? -ETIMEDOUT : 0}));
    default: return tell(id, telling({.what = Happened::kUnreachable, .status = -ETIMEDOUT}));
  }
}

/// Whether the manager knows nothing more of what the event is about. Of what is established a
/// rejection is not the last that is heard.
bool is_last(const Port& port, const cm::Event& event) {
  using enum cm::EventKind;
  switch (event.kind) {
    case kResolved:
    case kUnresolved:
    case kUnreachable:
    case kTimewaitOver: return true;
    case kRejected:
      return ask(port, [&](cm::Manager& manager, Time) { return !manager.state(event.id); });
    default: return false;
  }
}

}  // namespace

void take_event(Agent& agent, Port& port, const cm::Event& event) {
  using enum cm::EventKind;
  if (event.kind == kRequested || event.kind == kResolveRequested) {
    const auto found = port.listeners.find(event.listener);
    if (found == port.listeners.end()) return;  // it was refused with the listener's end
    return event.kind == kRequested ? take_connect_request(agent, port, *found->second, event)
                                    : take_service_request(agent, port, *found->second, event);
  }
  const auto found = port.connections.find(event.id);
  if (found == port.connections.end()) return;
  Id& id = *found->second;
  switch (event.kind) {
    case kReplied:
      if (id.state == IdState::kConnect) take_reply(id, std::get<wire::CmRep>(event.message));
      break;
    case kEstablished:
      if (id.state == IdState::kConnect) tell(id, telling({.what = Happened::kEstablished}));
      break;
    case kResolved: take_service_reply(id, std::get<wire::CmSidrRep>(event.message)); break;
    default: take_end(id, event); break;
  }
  if (is_last(port, event)) forget_connection(id);
}

}  // namespace verbena::compat::rdma_cm
