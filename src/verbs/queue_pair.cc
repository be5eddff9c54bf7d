// SPDX-License-Identifier: Apache-2.0
#include "verbena/queue_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "verbena/context.h"
#include "verbena/shared_receive_queue.h"

namespace verbena::verbs::detail {
namespace {

/// To the first child error of the list, whose handle must be there.
template <typename Handle>
Result<> hold(std::vector<keep>& parents, const Handle& parent) {
  VERBENA_TRY(access_to::check(parent, "create_qp"));
  parents.push_back(access_to::keep_of(parent));
  return {};
}

/// The fields that both structs have.
template <typename Attributes>
Attributes to_c(const plain_qp_attributes& from) {
  Attributes to{};
  to.qp_type = from.type;
  to.send_cq = from.send_cq->native();
  to.recv_cq = from.recv_cq->native();
  to.srq = from.srq == nullptr ? nullptr : from.srq->native();
  to.sq_sig_all = from.signal_all ? 1 : 0;
  to.cap = {.max_send_wr = from.caps.max_send_wr,
            .max_recv_wr = from.srq != nullptr ? 0 : from.caps.max_recv_wr,
            .max_send_sge = from.caps.max_send_sge,
            .max_recv_sge = from.srq != nullptr ? 0 : from.caps.max_recv_sge,
            .max_inline_data = from.caps.max_inline_data};
  return to;
}

qp_caps granted(const ibv_qp_cap& cap) {
  return {.max_send_wr = cap.max_send_wr,
          .max_recv_wr = cap.max_recv_wr,
          .max_send_sge = cap.max_send_sge,
          .max_recv_sge = cap.max_recv_sge,
          .max_inline_data = cap.max_inline_data};
}

}  // namespace

queue_pair_base::queue_pair_base(ibv_qp* raw, const qp_caps& caps, std::vector<keep> parents)
    : handle(raw, &ibv_destroy_qp, "ibv_destroy_qp", std::move(parents)), caps_(caps) {}

Result<queue_pair_base> queue_pair_base::adopt(ibv_qp* raw, ibv_qp_type type, const qp_caps& caps,
                                               ownership whose) {
  if (raw == nullptr)
    return fail(std::errc::invalid_argument, "adopt", "there is no queue pair at a null pointer");
  if (raw->qp_type != type)
    return fail(std::errc::invalid_argument, "adopt", "the queue pair is of another service");
  return queue_pair_base(raw, caps, destroyer_of(&ibv_destroy_qp, whose), "ibv_destroy_qp", {});
}

std::unexpected<Error> no_address() {
  return fail(std::errc::bad_file_descriptor, "post",
              "the address handle is empty: it was moved from or closed");
}

Result<queue_pair_base> create_qp(ibv_pd* pd, const plain_qp_attributes& from, keep parent,
                                  const qp_extras& extras) {
  std::vector<keep> parents{std::move(parent)};
  VERBENA_TRY(hold(parents, *from.send_cq));
  VERBENA_TRY(hold(parents, *from.recv_cq));
  if (from.srq != nullptr) VERBENA_TRY(hold(parents, *from.srq));
  ibv_qp* qp = nullptr;
  qp_caps caps;
  if (extras.send_ops == 0 && extras.create_flags == 0) {
    auto to = to_c<ibv_qp_init_attr>(from);
    qp = VERBENA_TRY(from_pointer(ibv_create_qp(pd, &to), "ibv_create_qp"));
    caps = granted(to.cap);
  } else {
    auto to = to_c<ibv_qp_init_attr_ex>(from);
    to.pd = pd;
    to.send_ops_flags = extras.send_ops;
    to.create_flags = extras.create_flags;
    to.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (extras.send_ops != 0) to.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if (extras.create_flags != 0) to.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    qp = VERBENA_TRY(from_pointer(ibv_create_qp_ex(pd->context, &to), "ibv_create_qp_ex"));
    caps = granted(to.cap);
  }
  return queue_pair_base(qp, caps, std::move(parents));
}

Result<ibv_qp_attr> queue_pair_base::query() const {
  VERBENA_TRY(check("query"));
  constexpr int kAll = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
                       IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT |
                       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN |
                       IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
                       IBV_QP_DEST_QPN | IBV_QP_CAP;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  VERBENA_TRY(from_errno(ibv_query_qp(raw(), &attributes, kAll, &initial), "ibv_query_qp"));
  return attributes;
}

qp_state queue_pair_base::state() const {
  const auto attributes = query();
  return attributes ? static_cast<qp_state>(attributes->qp_state) : qp_state::unknown;
}

Result<> queue_pair_base::modify(const qp_attributes& attributes) {
  VERBENA_TRY(check("modify"));
  const ibv_qp_attr now = VERBENA_TRY(query());
  const auto from = attributes.current_state.value_or(static_cast<qp_state>(now.qp_state));
  const unsigned mask = attributes.mask();
  VERBENA_TRY(check_transition(raw()->qp_type, from, attributes.state.value_or(from), mask));
  ibv_qp_attr wanted = attributes.native();
  VERBENA_TRY(from_errno(ibv_modify_qp(raw(), &wanted, static_cast<int>(mask)), "ibv_modify_qp"));
  if (observed() && attributes.state) tell_state(seen_as(raw()), from, *attributes.state);
  return {};
}

Result<> queue_pair_base::to_error() { return modify({.state = qp_state::err}); }
Result<> queue_pair_base::to_reset() { return modify({.state = qp_state::reset}); }

Result<qp_endpoint> queue_pair_base::local_endpoint(port of, gid_index index) const {
  VERBENA_TRY(check("endpoint"));
  ibv_gid id{};
  ibv_port_attr about{};
  VERBENA_TRY(from_minus_one(ibv_query_gid(raw()->context, of.value(), index.value(), &id),
                             "ibv_query_gid"));
  VERBENA_TRY(from_errno(ibv_query_port(raw()->context, of.value(), &about), "ibv_query_port"));
  return qp_endpoint{.id = gid(id),
                     .number = number(),
                     .first = VERBENA_TRY(random_psn()),
                     .lid = verbs::lid(about.lid),
                     .path_mtu = static_cast<mtu>(about.active_mtu),
                     .of = of,
                     .index = index};
}

namespace {

qp_attributes to_init(const qp_endpoint& local, const connect_options& options) {
  return {.state = qp_state::init,
          .rights = options.rights,
          .of = local.of,
          .pkey_index = options.pkey_index};
}

qp_attributes to_rtr(ibv_qp_type type, const qp_endpoint& local, const qp_endpoint& peer,
                     const connect_options& options) {
  qp_attributes wanted{.state = qp_state::rtr,
                       .way = path{.to = peer.id,
                                   .from = local.of,
                                   .source = local.index,
                                   .hop_limit = options.hop_limit,
                                   .traffic_class = options.traffic_class,
                                   .service_level = options.service_level,
                                   .to_lid = peer.lid},
                       .path_mtu = std::min(local.path_mtu, peer.path_mtu),
                       .dest_qp = peer.number,
                       .rq_psn = peer.first};
  if (type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV) {
    wanted.max_dest_rd_atomic = options.max_dest_rd_atomic;
    wanted.min_rnr_timer = options.min_rnr_timer;
  }
  return wanted;
}

qp_attributes to_rts(ibv_qp_type type, const qp_endpoint& local, const connect_options& options) {
  qp_attributes wanted{.state = qp_state::rts, .sq_psn = local.first};
  if (type != IBV_QPT_UC) wanted.timeout = options.timeout;
  if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND) {
    wanted.max_rd_atomic = options.max_rd_atomic;
    wanted.retry_count = options.retry_count;
    wanted.rnr_retry = options.rnr_retry;
  }
  return wanted;
}

}  // namespace

Result<> queue_pair_base::join(const qp_endpoint& local, const qp_endpoint& peer,
                               const connect_options& options) {
  VERBENA_TRY(check("connect"));
  const ibv_qp_type type = raw()->qp_type;
  VERBENA_TRY(modify(to_init(local, options)));
  VERBENA_TRY(modify(to_rtr(type, local, peer, options)));
  return modify(to_rts(type, local, options));
}

Result<> queue_pair_base::activate(port of, qkey key, psn first) {
  VERBENA_TRY(
      modify({.state = qp_state::init, .of = of, .pkey_index = std::uint16_t{0}, .key = key}));
  VERBENA_TRY(modify({.state = qp_state::rtr}));
  return modify({.state = qp_state::rts, .sq_psn = first});
}

Result<> queue_pair_base::activate_raw(port of) {
  VERBENA_TRY(modify({.state = qp_state::init, .of = of}));
  VERBENA_TRY(modify({.state = qp_state::rtr}));
  return modify({.state = qp_state::rts});
}

}  // namespace verbena::verbs::detail
