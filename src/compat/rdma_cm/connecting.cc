// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/connecting.h"

#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "compat/rdma_cm/datagrams.h"
#include "compat/rdma_cm/route.h"
#include "wire/cm_message.h"

namespace verbena::compat::rdma_cm {
namespace {

/// The most that three bits hold.
constexpr std::uint8_t kMostRetries = 7;
/// What programs send that know nothing of enhanced connection establishment.
constexpr std::size_t kSmallestConnect = offsetof(rdma_ucm_connect, ece);
constexpr std::size_t kSmallestAccept = offsetof(rdma_ucm_accept, ece);

/// All of it or none, as the kernel takes it.
template <typename Command>
wire::CmEce ece_of(const Command& command, const Request& request) {
  if (request.size < offsetof(Command, ece) + sizeof command.ece) return {};
  return {.vendor_id = command.ece.vendor_id, .options = command.ece.attr_mod};
}

std::uint8_t retries(std::uint8_t asked) { return std::min(asked, kMostRetries); }

wire::CmTransport transport_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UC: return wire::CmTransport::kUc;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV: return wire::CmTransport::kExtended;
    default: return wire::CmTransport::kRc;
  }
}

/// The request with all but its private data, as cm.c: an XRC initiator receives nothing, and its
/// target asks for nothing.
wire::CmReq make_request(const Id& id, const rdma_ucm_conn_param& asked) {
  const bool receives = id.qp_type != IBV_QPT_XRC_SEND;
  wire::CmReq request{
      .service_id = wire::service_id(id.space, id.destination.port),
      .local_qp = id.qp_num,
      .initiator_depth = asked.initiator_depth,
      .transport = transport_of(id.qp_type),
      .end_to_end_flow_control = asked.flow_control != 0,
      .starting_psn = id.psn,
      .path_mtu = id.route.mtu,
      .extended_transport = transport_of(id.qp_type) == wire::CmTransport::kExtended
                                ? wire::kCmExtendedXrc
                                : std::uint8_t{0},
  };
  if (receives) {
    request.responder_resources = asked.responder_resources;
    request.shared_receive_queue = id.shared_receive_queue;
    request.retry_count = retries(asked.retry_count);
    request.rnr_retry_count = retries(asked.rnr_retry_count);
  }
  request.primary.packet_rate = id.route.rate;
  request.primary.service_level = id.route.service_level;
  request.primary.local_ack_timeout = ack_timeout(kAckDelay, id.route.packet_lifetime);
  return request;
}

Result<void> connect_id(Id& id, const rdma_ucm_conn_param& asked, const wire::CmEce& ece) {
  wire::CmReq request = make_request(id, asked);
  request.ece = ece;
  VERBENA_TRY(fill_request_data(id, asked, request.private_data));
  const wire::Path path = to_path(id.route);
  id.connection = VERBENA_TRY(ask(*id.port, [&](cm::Manager& manager, Time now) {
    return manager.connect(path, request, now);
  }));
  id.port->connections[id.connection] = &id;
  id.agreement = {.responder_resources = asked.responder_resources,
                  .initiator_depth = asked.initiator_depth,
                  .retry_count = retries(asked.retry_count),
                  .rnr_retry_count = retries(asked.rnr_retry_count),
                  .timeout = static_cast<std::uint8_t>(id.route.packet_lifetime + 1)};
  return {};
}

Result<void> accept_id(Id& id, const rdma_ucm_conn_param& asked, const wire::CmEce& ece) {
  wire::CmRep reply{.local_qp = id.qp_num,
                    .starting_psn = id.psn,
                    .responder_resources = asked.responder_resources,
                    .initiator_depth = asked.initiator_depth,
                    .target_ack_delay = kAckDelay,
                    .end_to_end_flow_control = asked.flow_control != 0,
                    .rnr_retry_count = retries(asked.rnr_retry_count),
                    .shared_receive_queue = id.shared_receive_queue,
                    .ece = ece};
  if (id.qp_type == IBV_QPT_XRC_RECV) {  // as cm.c: it only receives, and always in shared queues
    reply.initiator_depth = 0;
    reply.end_to_end_flow_control = false;
    reply.shared_receive_queue = true;
  }
  VERBENA_TRY(copy_private_data(asked, reply.private_data));
  VERBENA_TRY(ask(*id.port, [&](cm::Manager& manager, Time now) {
    return manager.accept(id.connection, reply, now);
  }));
  id.agreement.responder_resources = asked.responder_resources;
  id.agreement.initiator_depth = asked.initiator_depth;
  return {};
}

Result<void> confirm_id(const Id& id) {
  return ask(*id.port,
             [&](cm::Manager& manager, Time) { return manager.confirm(id.connection, {}); });
}

Result<void> reject_id(Id& id, wire::RejectReason reason, const rdma_ucm_reject& command) {
  wire::CmRej rejection{.reason = reason};
  VERBENA_TRY(copy_private_data(command, rejection.private_data));
  VERBENA_TRY(ask(*id.port, [&](cm::Manager& manager, Time) {
    return manager.reject(id.connection, rejection);
  }));
  forget_connection(id);
  return {};
}

/// Only what a program says is sent.
Result<wire::RejectReason> reason_of(std::uint8_t reason) {
  using enum wire::RejectReason;
  if (reason == 0 || reason == static_cast<std::uint8_t>(kConsumer)) return kConsumer;
  if (reason == static_cast<std::uint8_t>(kVendorOptionNotSupported))
    return kVendorOptionNotSupported;
  return fail(std::errc::invalid_argument, "programs may not give that reason");
}

}  // namespace

void forget_connection(Id& id) {
  if (id.connection == 0) return;
  id.port->connections.erase(std::exchange(id.connection, 0));
}

void abandon_connection(Id& id) {
  const cm::ConnectionId connection = id.connection;
  if (connection == 0) return;
  forget_connection(id);
  ask(*id.port, [&](cm::Manager& manager, Time now) { manager.abandon(connection, now); });
}

Result<void> connect(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_connect>(kSmallestConnect));
  if (command.conn_param.valid == 0) return fail(std::errc::invalid_argument);
  Id& id = *VERBENA_TRY(find_bound_id(agent, file, command.id));
  if (id.state != IdState::kRouteResolved)
    return fail(std::errc::invalid_argument, "the route is not resolved");
  id.qp_num = command.conn_param.qp_num;
  id.shared_receive_queue = command.conn_param.srq != 0;
  VERBENA_TRY(id.datagrams() ? request_service(id, command.conn_param)
                             : connect_id(id, command.conn_param, ece_of(command, request)));
  id.requested = true;
  id.state = IdState::kConnect;
  return {};
}

Result<void> accept(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_accept>(kSmallestAccept));
  Id& id = *VERBENA_TRY(find_bound_id(agent, file, command.id));
  if (id.state != IdState::kConnect)
    return fail(std::errc::invalid_argument, "there is nothing to accept");
  const bool with_parameters = command.conn_param.valid != 0;
  if (with_parameters) {
    id.qp_num = command.conn_param.qp_num;
    id.shared_receive_queue = command.conn_param.srq != 0;
  }
  const wire::CmEce ece = ece_of(command, request);
  Result<void> accepted;
  if (id.datagrams()) {
    accepted = answer_service(id, command.conn_param, ece);
  } else {
    accepted = with_parameters ? accept_id(id, command.conn_param, ece) : confirm_id(id);
  }
  if (!accepted) {
    // As the kernel: whoever may not accept rejects.
    if (id.datagrams()) {
      static_cast<void>(refuse_service(id, {}));
    } else {
      static_cast<void>(reject_id(id, wire::RejectReason::kConsumer, {}));
    }
    return accepted;
  }
  if (with_parameters) id.uid = command.uid;
  return {};
}

Result<void> reject(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_reject>());
  const wire::RejectReason reason = VERBENA_TRY(reason_of(command.reason));
  Id& id = *VERBENA_TRY(find_bound_id(agent, file, command.id));
  if (!id.requested) return fail(std::errc::invalid_argument, "there is nothing to reject");
  return id.datagrams() ? refuse_service(id, command) : reject_id(id, reason, command);
}

Result<void> disconnect(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_disconnect>());
  Id& id = *VERBENA_TRY(find_bound_id(agent, file, command.id));
  if (!id.requested) return fail(std::errc::invalid_argument, "there is nothing to disconnect");
  // What was not connected, or is not any more, needs no end, and the kernel says nothing of it.
  static_cast<void>(ask(*id.port, [&](cm::Manager& manager, Time now) {
    return manager.disconnect(id.connection, {}, now);
  }));
  return {};
}

Result<void> notify(Agent& agent, File& file, const Request& request) {
  const auto command = VERBENA_TRY(request.read<rdma_ucm_notify>());
  Id& id = *VERBENA_TRY(find_bound_id(agent, file, command.id));
  if (!id.requested || command.event != IBV_EVENT_COMM_EST)
    return fail(std::errc::invalid_argument);
  return ask(*id.port, [&](cm::Manager& manager, Time) -> Result<void> {
    if (manager.state(id.connection) == cm::State::kEstablished)
      return fail(std::errc::already_connected);
    return manager.established(id.connection);
  });
}

}  // namespace verbena::compat::rdma_cm
