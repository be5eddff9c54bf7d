// SPDX-License-Identifier: Apache-2.0
#include "bench/api_cost/null_provider.h"

namespace verbena::bench {
namespace {

volatile std::uint64_t sum = 0;

void add(std::uint64_t value) { sum = sum * 31 + value; }

void add(const ibv_sge* list, int count) {
  for (int i = 0; i < count; ++i) add(list[i].length ^ list[i].lkey);
}

int post_send(ibv_qp* /*qp*/, ibv_send_wr* wr, ibv_send_wr** /*bad*/) {
  for (; wr != nullptr; wr = wr->next) {
    add(wr->wr_id ^ wr->opcode ^ wr->send_flags);
    add(wr->sg_list, wr->num_sge);
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      add(wr->wr.atomic.remote_addr ^ wr->wr.atomic.rkey ^ wr->wr.atomic.compare_add);
    else if (wr->opcode != IBV_WR_SEND)
      add(wr->wr.rdma.remote_addr ^ wr->wr.rdma.rkey);
  }
  return 0;
}

int post_recv(ibv_qp* /*qp*/, ibv_recv_wr* wr, ibv_recv_wr** /*bad*/) {
  for (; wr != nullptr; wr = wr->next) {
    add(wr->wr_id);
    add(wr->sg_list, wr->num_sge);
  }
  return 0;
}

int poll_cq(ibv_cq* /*cq*/, int count, ibv_wc* into) {
  for (int i = 0; i < count; ++i) {
    into[i].wr_id = static_cast<std::uint64_t>(i);
    into[i].status = IBV_WC_SUCCESS;
    into[i].byte_len = 64;
  }
  return count;
}

int req_notify_cq(ibv_cq* /*cq*/, int solicited) {
  add(static_cast<std::uint64_t>(solicited));
  return 0;
}

}  // namespace

NullProvider::NullProvider() {
  context_.ops.post_send = post_send;
  context_.ops.post_recv = post_recv;
  context_.ops.poll_cq = poll_cq;
  context_.ops.req_notify_cq = req_notify_cq;
  qp_.context = &context_;
  qp_.qp_type = IBV_QPT_RC;
  cq_.context = &context_;
}

std::uint64_t null_provider_sum() { return sum; }
void reset_null_provider_sum() { sum = 0; }

}  // namespace verbena::bench
