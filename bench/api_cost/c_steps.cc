// SPDX-License-Identifier: Apache-2.0
//
// As a careful program writes it in C.
#include "bench/api_cost/steps.h"

namespace verbena::bench {
namespace {

unsigned flags(const CSide& with) {
  unsigned made = IBV_SEND_SIGNALED;
  if (with.memory.length <= with.max_inline) made |= IBV_SEND_INLINE;
  return made;
}

/// Named where it lies: posting only reads it.
ibv_sge* place(const CSide& with) { return const_cast<ibv_sge*>(&with.memory); }

/// The fields that each request has; others are not written.
void fill(ibv_send_wr& wr, ibv_sge* sge, std::uint64_t wr_id, ibv_wr_opcode opcode,
          unsigned flags) {
  wr.wr_id = wr_id;
  wr.next = nullptr;
  wr.sg_list = sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = flags;
}

std::int64_t post(const CSide& with, ibv_send_wr& wr) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(with.qp, &wr, &bad) == 0 ? 0 : -1;
}

std::int64_t send(const CSide& with, std::uint64_t wr_id) {
  ibv_sge* const sge = place(with);
  ibv_send_wr wr;
  fill(wr, sge, wr_id, IBV_WR_SEND, flags(with));
  return post(with, wr);
}

std::int64_t rdma(const CSide& with, std::uint64_t wr_id, ibv_wr_opcode opcode, unsigned flags) {
  ibv_sge* const sge = place(with);
  ibv_send_wr wr;
  fill(wr, sge, wr_id, opcode, flags);
  wr.wr.rdma.remote_addr = with.remote;
  wr.wr.rdma.rkey = with.rkey;
  return post(with, wr);
}

std::int64_t write(const CSide& with, std::uint64_t wr_id) {
  return rdma(with, wr_id, IBV_WR_RDMA_WRITE, flags(with));
}

std::int64_t read(const CSide& with, std::uint64_t wr_id) {
  return rdma(with, wr_id, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED);
}

std::int64_t fetch_add(const CSide& with, std::uint64_t wr_id) {
  ibv_sge* const sge = place(with);
  ibv_send_wr wr;
  fill(wr, sge, wr_id, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED);
  wr.wr.atomic.remote_addr = with.remote;
  wr.wr.atomic.rkey = with.rkey;
  wr.wr.atomic.compare_add = 1;
  wr.wr.atomic.swap = 0;
  return post(with, wr);
}

std::int64_t receive(const CSide& with, std::uint64_t wr_id) {
  ibv_sge* const sge = place(with);
  ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(with.qp, &wr, &bad) == 0 ? 0 : -1;
}

std::int64_t list(const CSide& with, std::uint64_t wr_id) {
  ibv_sge* const sge = place(with);
  std::array<ibv_send_wr, kBatch> wrs;
  for (std::size_t i = 0; i < kBatch; ++i) {
    fill(wrs[i], sge, wr_id + i, IBV_WR_SEND, flags(with));
    if (i > 0) wrs[i - 1].next = &wrs[i];
  }
  return post(with, wrs[0]);
}

std::int64_t poll_one(const CSide& with, std::uint64_t /*wr_id*/) {
  ibv_wc wc;
  if (ibv_poll_cq(with.cq, 1, &wc) != 1 || wc.status != IBV_WC_SUCCESS) return -1;
  return static_cast<std::int64_t>(wc.wr_id + wc.byte_len);
}

template <std::size_t n>
std::int64_t poll(const CSide& with, std::uint64_t /*wr_id*/) {
  std::array<ibv_wc, n> wcs;
  const int got = ibv_poll_cq(with.cq, static_cast<int>(n), wcs.data());
  if (got < 0) return -1;
  std::int64_t seen = 0;
  for (int i = 0; i < got; ++i) {
    const ibv_wc& wc = wcs[static_cast<std::size_t>(i)];
    if (wc.status != IBV_WC_SUCCESS) return -1;
    seen += static_cast<std::int64_t>(wc.wr_id + wc.byte_len);
  }
  return seen;
}

std::int64_t notify(const CSide& with, std::uint64_t /*wr_id*/) {
  return ibv_req_notify_cq(with.cq, 0) == 0 ? 0 : -1;
}

// What follows is written straight into the queue.

void name(ibv_qp_ex* qp, std::uint64_t wr_id) {
  qp->wr_id = wr_id;
  qp->wr_flags = IBV_SEND_SIGNALED;
}

void set_memory(ibv_qp_ex* qp, const ibv_sge& memory) {
  ibv_wr_set_sge(qp, memory.lkey, memory.addr, memory.length);
}

std::int64_t complete(ibv_qp_ex* qp) { return ibv_wr_complete(qp) == 0 ? 0 : -1; }

std::int64_t wr_send(const CSide& with, std::uint64_t wr_id) {
  ibv_qp_ex* const qp = with.qp_ex;
  ibv_wr_start(qp);
  name(qp, wr_id);
  ibv_wr_send(qp);
  set_memory(qp, with.memory);
  return complete(qp);
}

std::int64_t wr_write(const CSide& with, std::uint64_t wr_id) {
  ibv_qp_ex* const qp = with.qp_ex;
  ibv_wr_start(qp);
  name(qp, wr_id);
  ibv_wr_rdma_write(qp, with.rkey, with.remote);
  set_memory(qp, with.memory);
  return complete(qp);
}

std::int64_t wr_read(const CSide& with, std::uint64_t wr_id) {
  ibv_qp_ex* const qp = with.qp_ex;
  ibv_wr_start(qp);
  name(qp, wr_id);
  ibv_wr_rdma_read(qp, with.rkey, with.remote);
  set_memory(qp, with.memory);
  return complete(qp);
}

std::int64_t wr_list(const CSide& with, std::uint64_t wr_id) {
  ibv_qp_ex* const qp = with.qp_ex;
  ibv_wr_start(qp);
  for (std::size_t i = 0; i < kBatch; ++i) {
    name(qp, wr_id + i);
    ibv_wr_send(qp);
    set_memory(qp, with.memory);
  }
  return complete(qp);
}

template <std::size_t n>
std::int64_t poll_ex(const CSide& with, std::uint64_t /*wr_id*/) {
  ibv_cq_ex* const cq = with.cq_ex;
  ibv_poll_cq_attr attributes{};
  const int started = ibv_start_poll(cq, &attributes);
  if (started == ENOENT) return 0;
  if (started != 0) return -1;
  std::int64_t seen = 0;
  for (std::size_t left = n;;) {
    if (cq->status != IBV_WC_SUCCESS) break;
    seen += static_cast<std::int64_t>(cq->wr_id + ibv_wc_read_byte_len(cq));
    if (--left == 0) break;
    const int gone_on = ibv_next_poll(cq);
    if (gone_on == ENOENT) break;
    if (gone_on != 0) {
      seen = -1;
      break;
    }
  }
  ibv_end_poll(cq);
  return seen;
}

}  // namespace

const std::array<std::int64_t (*)(const CSide&, std::uint64_t), kStepNames.size()> kCSteps{
    send,   write,   read,     fetch_add, receive, list,       poll_one,       poll<kBatch>,
    notify, wr_send, wr_write, wr_read,   wr_list, poll_ex<1>, poll_ex<kBatch>};

}  // namespace verbena::bench
