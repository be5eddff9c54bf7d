// SPDX-License-Identifier: Apache-2.0
#include "verbena/handle.h"

#include <cstdio>
#include <mutex>
#include <utility>

namespace verbena::verbs {
namespace {

void print(const char* verb, std::error_code code) {
  std::fprintf(stderr, "verbena: %s, called by a destructor: %s\n", verb, code.message().c_str());
}

struct Hook {
  std::mutex mutex;
  lost_hook call = print;
};
/// Never destroyed: objects may outlive main().
Hook& hook() {
  static auto* const one = new Hook;
  return *one;
}

// The calls of a queue that is not there.
int no_sends(ibv_qp* /*qp*/, ibv_send_wr* first, ibv_send_wr** bad) {
  *bad = first;
  return EBADF;
}
int no_receives(ibv_qp* /*qp*/, ibv_recv_wr* first, ibv_recv_wr** bad) {
  *bad = first;
  return EBADF;
}
int no_shared_receives(ibv_srq* /*srq*/, ibv_recv_wr* first, ibv_recv_wr** bad) {
  *bad = first;
  return EBADF;
}
int no_poll(ibv_cq* /*cq*/, int /*most*/, ibv_wc* /*to*/) { return -EBADF; }
int no_start(ibv_cq_ex* /*cq*/, ibv_poll_cq_attr* /*how*/) { return EBADF; }
int no_next(ibv_cq_ex* /*cq*/) { return EBADF; }
void no_end(ibv_cq_ex* /*cq*/) {}
// Those of a session.
void no_call(ibv_qp_ex* /*qp*/) {}
template <typename... Args>
void no_request(ibv_qp_ex* /*qp*/, Args... /*what*/) {}
int no_complete(ibv_qp_ex* /*qp*/) { return EBADF; }

/// A field of no completion.
template <typename T>
T no_field(ibv_cq_ex* /*cq*/) {
  return T{};
}
int no_notification(ibv_cq* /*cq*/, int /*solicited*/) { return EBADF; }

struct Closed {
  ibv_context context{};
  ibv_qp_ex qp = detail::silent_queue();
  ibv_cq_ex cq{};
  ibv_srq srq{};
  Closed() {
    context.ops.post_send = no_sends;
    context.ops.post_recv = no_receives;
    context.ops.post_srq_recv = no_shared_receives;
    context.ops.poll_cq = no_poll;
    context.ops.req_notify_cq = no_notification;
    qp.qp_base.context = cq.context = srq.context = &context;
    cq.status = IBV_WC_GENERAL_ERR;
    cq.start_poll = no_start;
    cq.next_poll = no_next;
    cq.end_poll = no_end;
    cq.read_opcode = no_field;
    cq.read_vendor_err = cq.read_byte_len = cq.read_qp_num = no_field;
    cq.read_src_qp = cq.read_flow_tag = no_field;
    cq.read_imm_data = no_field;
    cq.read_wc_flags = no_field;
    cq.read_completion_ts = cq.read_completion_wallclock_ns = no_field;
  }
};
Closed& nothing() {
  static auto* const one = new Closed;
  return *one;
}

}  // namespace

void on_lost(lost_hook call) {
  const std::scoped_lock lock(hook().mutex);
  hook().call = std::move(call);
}

namespace detail {

ibv_qp_ex silent_queue() noexcept {
  ibv_qp_ex queue{};
  queue.wr_start = queue.wr_send = queue.wr_abort = no_call;
  queue.wr_complete = no_complete;
  queue.wr_send_imm = queue.wr_send_inv = queue.wr_local_inv = no_request;
  queue.wr_rdma_write = queue.wr_rdma_read = no_request;
  queue.wr_rdma_write_imm = no_request;
  queue.wr_atomic_fetch_add = no_request;
  queue.wr_atomic_cmp_swp = no_request;
  queue.wr_atomic_write = no_request;
  queue.wr_bind_mw = no_request;
  queue.wr_set_xrc_srqn = no_request;
  queue.wr_set_ud_addr = no_request;
  queue.wr_set_sge = no_request;
  queue.wr_set_sge_list = no_request;
  queue.wr_set_inline_data = no_request;
  queue.wr_set_inline_data_list = no_request;
  return queue;
}

void report_lost(const char* verb, int error) noexcept {
  const std::error_code code(error == -1 ? errno : error, verbs_category());
  if (observed()) tell(&observer::lost, verb, code);
  const std::scoped_lock lock(hook().mutex);
  if (hook().call) hook().call(verb, code);
}

template <>
ibv_qp* closed<ibv_qp>() noexcept {
  return &nothing().qp.qp_base;
}
template <>
ibv_cq* closed<ibv_cq>() noexcept {
  return ibv_cq_ex_to_cq(&nothing().cq);
}
template <>
ibv_srq* closed<ibv_srq>() noexcept {
  return &nothing().srq;
}
template <>
ibv_cq_ex* closed<ibv_cq_ex>() noexcept {
  return &nothing().cq;
}

}  // namespace detail
}  // namespace verbena::verbs
