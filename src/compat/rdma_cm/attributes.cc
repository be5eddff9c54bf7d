// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/attributes.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include "compat/query.h"
#include "compat/rdma_cm/datagrams.h"
#include "compat/rdma_cm/route.h"

namespace verbena::compat::rdma_cm {
namespace {

/// Without a connection, and for datagrams always: what makes the queue pair's port known.
void without_connection(Id& id, ib_uverbs_qp_attr& to) {
  to.port_num = kPort;
  to.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (id.datagrams()) {
    to.qkey = queue_key(id);
    to.qp_attr_mask |= IBV_QP_QKEY;
  } else {
    to.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
  }
}

void for_init(const Id& id, ib_uverbs_qp_attr& to) {
  to.port_num = kPort;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (id.agreement.responder_resources > 0)
    to.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  to.qp_attr_mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
}

void for_rtr(const Id& id, ib_uverbs_qp_attr& to) {
  to.ah_attr = to_address_vector(id, id.route);
  to.path_mtu = id.route.mtu;
  to.dest_qp_num = id.agreement.remote_qp;
  to.rq_psn = id.psn;
  to.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (id.qp_type != IBV_QPT_RC && id.qp_type != IBV_QPT_XRC_RECV) return;
  to.max_dest_rd_atomic = id.agreement.responder_resources;
  to.min_rnr_timer = 0;
  to.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

void for_rts(const Id& id, ib_uverbs_qp_attr& to) {
  to.sq_psn = id.agreement.send_psn;
  to.qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (id.qp_type == IBV_QPT_UC) return;
  to.timeout = id.ack_timeout.value_or(id.agreement.timeout);
  to.qp_attr_mask |= IBV_QP_TIMEOUT;
  if (id.qp_type == IBV_QPT_XRC_RECV) return;
  to.retry_cnt = id.agreement.retry_count;
  to.rnr_retry = id.agreement.rnr_retry_count;
  to.max_rd_atomic = id.agreement.initiator_depth;
  to.qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

/// Whether enough is known of the peer, as cm.c: the passive side may be ready before its REP is.
bool may(std::optional<cm::State> state, std::uint32_t to) {
  using enum cm::State;
  if (!state) return false;
  switch (*state) {
    case kReqSent:
    case kMraReqReceived: return to == IBV_QPS_INIT;
    case kReqReceived:
    case kRepReceived:
    case kRepSent:
    case kMraRepReceived:
    case kEstablished: return true;
    default: return false;
  }
}

Result<void> with_connection(const Id& id, ib_uverbs_qp_attr& to) {
  const auto state =
      ask(*id.port, [&](cm::Manager& manager, Time) { return manager.state(id.connection); });
  if (!may(state, to.qp_state) || !id.has_route)
    return fail(std::errc::invalid_argument, "the connection is not in a state for that");
  switch (to.qp_state) {
    case IBV_QPS_INIT: for_init(id, to); return {};
    case IBV_QPS_RTR: for_rtr(id, to); return {};
    case IBV_QPS_RTS: for_rts(id, to); return {};
    default: return fail(std::errc::invalid_argument, "connections know nothing of that state");
  }
}

}  // namespace

Result<void> init_qp_attributes(Agent& agent, File& file, const Request& request) {
  ib_uverbs_qp_attr response{};
  const auto command = VERBENA_TRY(request.read_with_room<rdma_ucm_init_qp_attr>(sizeof response));
  if (command.qp_state > IBV_QPS_ERR) return fail(std::errc::invalid_argument, "no such state");
  Id& id = *VERBENA_TRY(find_bound_id(agent, file, command.id));
  response.qp_state = command.qp_state;
  if (!id.requested || id.datagrams()) {
    without_connection(id, response);
    if (command.qp_state == IBV_QPS_RTR) response.rq_psn = id.psn;
  } else {
    VERBENA_TRY(with_connection(id, response));
  }
  return request.answer(command.response, response);
}

}  // namespace verbena::compat::rdma_cm
