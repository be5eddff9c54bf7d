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

void wr_start(ibv_qp_ex* /*qp*/) {}
int wr_complete(ibv_qp_ex* /*qp*/) { return 0; }
void wr_abort(ibv_qp_ex* /*qp*/) {}

void wr_send(ibv_qp_ex* qp) { add(qp->wr_id ^ IBV_WR_SEND ^ qp->wr_flags); }

void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  add(qp->wr_id ^ IBV_WR_RDMA_WRITE ^ qp->wr_flags);
  add(address ^ rkey);
}

void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  add(qp->wr_id ^ IBV_WR_RDMA_READ ^ qp->wr_flags);
  add(address ^ rkey);
}

void wr_set_sge(ibv_qp_ex* /*qp*/, std::uint32_t lkey, std::uint64_t address,
                std::uint32_t length) {
  add(length ^ lkey);
  add(address);
}

// The queue is never empty; a poll ends when its caller has had enough.
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* /*how*/) {
  cq->status = IBV_WC_SUCCESS;
  cq->wr_id = 0;
  return 0;
}

int next_poll(ibv_cq_ex* cq) {
  ++cq->wr_id;
  return 0;
}

void end_poll(ibv_cq_ex* /*cq*/) {}
std::uint32_t read_byte_len(ibv_cq_ex* /*cq*/) { return 64; }

}  // namespace

NullProvider::NullProvider() {
  context_.ops.post_send = post_send;
  context_.ops.post_recv = post_recv;
  context_.ops.poll_cq = poll_cq;
  context_.ops.req_notify_cq = req_notify_cq;
  qp_.qp_base.context = &context_;
  qp_.qp_base.qp_type = IBV_QPT_RC;
  qp_.wr_start = wr_start;
  qp_.wr_complete = wr_complete;
  qp_.wr_abort = wr_abort;
  qp_.wr_send = wr_send;
  qp_.wr_rdma_write = wr_rdma_write;
  qp_.wr_rdma_read = wr_rdma_read;
  qp_.wr_set_sge = wr_set_sge;
  cq_.context = &context_;
  cq_.start_poll = start_poll;
  cq_.next_poll = next_poll;
  cq_.end_poll = end_poll;
  cq_.read_byte_len = read_byte_len;
}

std::uint64_t null_provider_sum() { return sum; }
void reset_null_provider_sum() { sum = 0; }

}  // namespace verbena::bench
