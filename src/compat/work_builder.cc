// SPDX-License-Identifier: Apache-2.0
#include "compat/work_builder.h"

#include <endian.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "compat/errno.h"
#include "compat/tsan.h"
#include "compat/work_request.h"

namespace verbena::compat {
namespace {

/// Begins a request with what the program set in the C object: wr_id and wr_flags.
engine::SendRequest& begin(ibv_qp_ex* c_qp, engine::SendOpcode opcode) {
  WorkBuilder& builder = *Qp::of(c_qp).builder;
  builder.places.emplace_back();
  engine::SendRequest& made = builder.requests.emplace_back();
  made.id = c_qp->wr_id;
  made.opcode = opcode;
  if (const int error = set_flags(made, c_qp->qp_base.qp_type, c_qp->wr_flags); error != 0)
    builder.error = error;
  made.inline_data = false;  // wr_set_inline_data says so, not the flags
  return made;
}

/// A remote operation's target.
engine::SendRequest& begin_remote(ibv_qp_ex* qp, engine::SendOpcode opcode, std::uint32_t rkey,
                                  std::uint64_t address) {
  engine::SendRequest& request = begin(qp, opcode);
  request.remote_address = address;
  request.rkey = rkey;
  return request;
}

/// Whether there is a request that the setters are about; before the first one is begun it is
/// EINVAL at the end.
bool begun(ibv_qp_ex* qp) {
  WorkBuilder& builder = *Qp::of(qp).builder;
  if (builder.requests.empty()) builder.error = EINVAL;
  return !builder.requests.empty();
}

void wr_send(ibv_qp_ex* qp) { begin(qp, engine::SendOpcode::kSend); }

void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) {
  begin(qp, engine::SendOpcode::kSendWithImm).immediate = be32toh(immediate);
}

void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  begin(qp, engine::SendOpcode::kSendWithInvalidate).invalidate_rkey = rkey;
}

void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  begin(qp, engine::SendOpcode::kLocalInvalidate).invalidate_rkey = rkey;
}

void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(qp, engine::SendOpcode::kRead, rkey, address);
}

void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(qp, engine::SendOpcode::kWrite, rkey, address);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  begin_remote(qp, engine::SendOpcode::kWriteWithImm, rkey, address).immediate = be32toh(immediate);
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                       std::uint64_t compare, std::uint64_t swap) {
  engine::SendRequest& request = begin_remote(qp, engine::SendOpcode::kCompareSwap, rkey, address);
  request.compare_or_add = compare;
  request.swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                         std::uint64_t add) {
  begin_remote(qp, engine::SendOpcode::kFetchAdd, rkey, address).compare_or_add = add;
}

void wr_atomic_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, const void* bytes) {
  engine::SendRequest& request = begin_remote(qp, engine::SendOpcode::kAtomicWrite, rkey, address);
  std::memcpy(&request.swap, bytes, sizeof request.swap);
}

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  engine::SendRequest& request = begin(qp, engine::SendOpcode::kBindWindow);
  const int error =
      mw->type == IBV_MW_TYPE_2 ? set_binding(request, qp->qp_base, *mw, rkey, *info) : EINVAL;
  if (error != 0) Qp::of(qp).builder->error = error;
}

// Operations that check_send_operations() did not grant end the batch with an error.
void refuse(ibv_qp_ex* qp) { Qp::of(qp).builder->error = EOPNOTSUPP; }
void wr_send_tso(ibv_qp_ex* qp, void*, std::uint16_t, std::uint16_t) { refuse(qp); }

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qpn,
                    std::uint32_t remote_qkey) {
  if (!begun(qp)) return;
  WorkBuilder& builder = *Qp::of(qp).builder;
  const int error = set_target(builder.requests.back(), qp->qp_base, ah, remote_qpn, remote_qkey);
  if (error != 0) builder.error = error;
}

void wr_set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t remote_srqn) {
  if (!begun(qp)) return;
  WorkBuilder& builder = *Qp::of(qp).builder;
  if (const int error = set_remote_srq(builder.requests.back(), remote_srqn); error != 0)
    builder.error = error;
}

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) {
  if (!begun(qp)) return;
  WorkBuilder& builder = *Qp::of(qp).builder;
  if (count > Qp::of(qp).max_send_sge) {
    builder.error = EINVAL;
    return;
  }
  const std::size_t first = builder.pieces.size();
  builder.places.back().first_piece = first;
  builder.places.back().piece_count = count;
  builder.pieces.resize(first + count);
  copy_pieces(std::span(builder.pieces).subspan(first), list);
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge piece{.addr = address, .length = length, .lkey = lkey};
  wr_set_sge_list(qp, 1, &piece);
}

void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
  if (!begun(qp)) return;
  Qp& ours = Qp::of(qp);
  WorkBuilder& builder = *ours.builder;
  WorkBuilder::Place& place = builder.places.back();
  builder.requests.back().inline_data = true;
  place.first_inline = builder.inline_bytes.size();
  place.inline_size = 0;
  for (const ibv_data_buf& buffer : std::span(list, count)) {
    if (buffer.length > ours.init.cap.max_inline_data - place.inline_size) {
      builder.error = EINVAL;
      return;
    }
    const auto* bytes = static_cast<const std::byte*>(buffer.addr);
    builder.inline_bytes.insert(builder.inline_bytes.end(), bytes, bytes + buffer.length);
    place.inline_size += buffer.length;
  }
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
  const ibv_data_buf buffer{.addr = address, .length = length};
  wr_set_inline_data_list(qp, 1, &buffer);
}

void wr_start(ibv_qp_ex* qp) {
  WorkBuilder& builder = *Qp::of(qp).builder;
  builder.lock.lock();
  builder.error = is_dead(Qp::of(qp).generation) ? EIO : 0;
  builder.requests.clear();
  builder.places.clear();
  builder.pieces.clear();
  builder.inline_bytes.clear();
}

/// Gives each request its gather list, which for inline data is one piece of the builder's memory:
/// now that neither vector grows any more.
void set_pieces(WorkBuilder& builder) {
  for (std::size_t i = 0; i < builder.requests.size(); ++i) {
    WorkBuilder::Place& place = builder.places[i];
    if (!builder.requests[i].inline_data) continue;
    const auto* bytes = builder.inline_bytes.data() + place.first_inline;
    place.first_piece = builder.pieces.size();
    place.piece_count = place.inline_size != 0 ? 1 : 0;
    builder.pieces.push_back(
        {reinterpret_cast<std::uint64_t>(bytes), static_cast<std::uint32_t>(place.inline_size), 0});
  }
  for (std::size_t i = 0; i < builder.requests.size(); ++i) {
    const WorkBuilder::Place& place = builder.places[i];
    builder.requests[i].pieces =
        std::span(builder.pieces).subspan(place.first_piece, place.piece_count);
  }
}

/// All or nothing: an error aborts the entire posting (ibv_wr_post(3)).
int post_all(Qp& qp, WorkBuilder& builder) {
  if (builder.error != 0) return builder.error;
  set_pieces(builder);
  if (const auto posted = qp.nic->post_send(qp.pair, builder.requests); !posted)
    return to_errno(posted.error());
  qp.nic->ring(qp.pair);
  return 0;
}

int wr_complete(ibv_qp_ex* c_qp) {
  Qp& qp = Qp::of(c_qp);
  hand_over(&Cq::of(qp.qp_base.send_cq));
  const int error = post_all(qp, *qp.builder);
  qp.builder->lock.unlock();
  return error;
}

void wr_abort(ibv_qp_ex* qp) { Qp::of(qp).builder->lock.unlock(); }

constexpr std::uint64_t kUdOperations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kUcOperations = kUdOperations | IBV_QP_EX_WITH_RDMA_WRITE |
                                        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                        IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
constexpr std::uint64_t kRcOperations = kUcOperations | IBV_QP_EX_WITH_RDMA_READ |
                                        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                        IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE;

}  // namespace

Result<void> check_send_operations(std::uint32_t type, std::uint64_t operations) {
  if ((operations & ~kRcOperations) != 0) {
    return fail(std::errc::operation_not_supported,
                "a send operation that this device does not have");
  }
  const std::uint64_t known = type == IBV_QPT_UD           ? kUdOperations
                              : type == IBV_QPT_UC         ? kUcOperations
                              : type == IBV_QPT_XRC_RECV   ? 0
                              : type == IBV_QPT_RAW_PACKET ? std::uint64_t{IBV_QP_EX_WITH_SEND}
                                                           : kRcOperations;
  if ((operations & ~known) != 0)
    return fail(std::errc::invalid_argument, "a send operation that the type does not have");
  return {};
}

void install_work_builder(Qp& qp) {
  qp.builder = std::make_unique<WorkBuilder>();
  qp.wr_atomic_cmp_swp = &wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = &wr_atomic_fetch_add;
  qp.wr_bind_mw = &wr_bind_mw;
  qp.wr_local_inv = &wr_local_inv;
  qp.wr_rdma_read = &wr_rdma_read;
  qp.wr_rdma_write = &wr_rdma_write;
  qp.wr_rdma_write_imm = &wr_rdma_write_imm;
  qp.wr_send = &wr_send;
  qp.wr_send_imm = &wr_send_imm;
  qp.wr_send_inv = &wr_send_inv;
  qp.wr_send_tso = &wr_send_tso;
  qp.wr_set_ud_addr = &wr_set_ud_addr;
  qp.wr_set_xrc_srqn = &wr_set_xrc_srqn;
  qp.wr_set_inline_data = &wr_set_inline_data;
  qp.wr_set_inline_data_list = &wr_set_inline_data_list;
  qp.wr_set_sge = &wr_set_sge;
  qp.wr_set_sge_list = &wr_set_sge_list;
  qp.wr_start = &wr_start;
  qp.wr_complete = &wr_complete;
  qp.wr_abort = &wr_abort;
  qp.wr_atomic_write = &wr_atomic_write;
}

}  // namespace verbena::compat
