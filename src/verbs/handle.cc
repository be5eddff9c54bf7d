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
int no_notification(ibv_cq* /*cq*/, int /*solicited*/) { return EBADF; }

struct Closed {
  ibv_context context{};
  ibv_qp qp{};
  ibv_cq cq{};
  ibv_srq srq{};
  Closed() {
    context.ops.post_send = no_sends;
    context.ops.post_recv = no_receives;
    context.ops.post_srq_recv = no_shared_receives;
    context.ops.poll_cq = no_poll;
    context.ops.req_notify_cq = no_notification;
    qp.context = cq.context = srq.context = &context;
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

void report_lost(const char* verb, int error) noexcept {
  const std::error_code code(error == -1 ? errno : error, verbs_category());
  if (observed()) tell(&observer::lost, verb, code);
  const std::scoped_lock lock(hook().mutex);
  if (hook().call) hook().call(verb, code);
}

template <>
ibv_qp* closed<ibv_qp>() noexcept {
  return &nothing().qp;
}
template <>
ibv_cq* closed<ibv_cq>() noexcept {
  return &nothing().cq;
}
template <>
ibv_srq* closed<ibv_srq>() noexcept {
  return &nothing().srq;
}

}  // namespace detail
}  // namespace verbena::verbs
