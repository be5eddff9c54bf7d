// SPDX-License-Identifier: Apache-2.0
#include "compat/work_builder.h"

#include <endian.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "compat/errno.h"
#include "compat/tsan.h"
#include "compat/work_request.h"

namespace verbena::compat {
namespace {

/// Notes why the batch will not be posted. That there is no room is said only of one without
/// mistakes.
void note(WorkBuilder& builder, int error) {
  if (error != 0 && (error != ENOMEM || builder.error == 0)) builder.error = error;
}

/// Where the latest request's pieces and inline data go; null when it has no place.
nic::SendPosting* posting_of(WorkBuilder& builder) {
  const bool placed = builder.request != nullptr && builder.request != &builder.lost;
  return placed && builder.posting ? &*builder.posting : nullptr;
}

/// The latest request is whole.
void end(WorkBuilder& builder) {
  nic::SendPosting* const posting = posting_of(builder);
  if (posting == nullptr) return;
  if (const auto ended = posting->end(); !ended) note(builder, to_errno(ended.error()));
}

/// Begins a request with what the program set in the C object: wr_id and wr_flags.
engine::SendRequest& begin(ibv_qp_ex* c_qp, engine::SendOpcode opcode) {
  WorkBuilder& builder = *Qp::of(c_qp).builder;
  end(builder);
  builder.request = &builder.lost;
  if (builder.posting && builder.error == 0) {
    const auto begun = builder.posting->begin();
    if (begun) builder.request = *begun;
    if (!begun) note(builder, to_errno(begun.error()));
  }
  engine::SendRequest& made = *builder.request;
  made.id = c_qp->wr_id;
  made.opcode = opcode;
  note(builder, set_flags(made, c_qp->qp_base.qp_type, c_qp->wr_flags));
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

/// The builder whose latest request the setters are about; null before one is begun, which is
/// EINVAL at the end.
WorkBuilder* begun(ibv_qp_ex* qp) {
  WorkBuilder& builder = *Qp::of(qp).builder;
  if (builder.request != nullptr) return &builder;
  note(builder, EINVAL);
  return nullptr;
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
  note(*Qp::of(qp).builder,
       mw->type == IBV_MW_TYPE_2 ? set_binding(request, qp->qp_base, *mw, rkey, *info) : EINVAL);
}

// Operations that check_send_operations() did not grant end the batch with an error.
void refuse(ibv_qp_ex* qp) { note(*Qp::of(qp).builder, EOPNOTSUPP); }
void wr_send_tso(ibv_qp_ex* qp, void*, std::uint16_t, std::uint16_t) { refuse(qp); }

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qpn,
                    std::uint32_t remote_qkey) {
  WorkBuilder* const builder = begun(qp);
  if (builder == nullptr) return;
  note(*builder, set_target(*builder->request, qp->qp_base, ah, remote_qpn, remote_qkey));
}

void wr_set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t remote_srqn) {
  WorkBuilder* const builder = begun(qp);
  if (builder == nullptr) return;
  note(*builder, set_remote_srq(*builder->request, remote_srqn));
}

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) {
  WorkBuilder* const builder = begun(qp);
  if (builder == nullptr) return;
  if (count > Qp::of(qp).max_send_sge) return note(*builder, EINVAL);
  if (nic::SendPosting* const posting = posting_of(*builder); posting != nullptr)
    copy_pieces(posting->make_pieces(count), list);
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge piece{.addr = address, .length = length, .lkey = lkey};
  wr_set_sge_list(qp, 1, &piece);
}

void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
  WorkBuilder* const builder = begun(qp);
  nic::SendPosting* const posting = builder == nullptr ? nullptr : posting_of(*builder);
  if (posting == nullptr) return;
  posting->begin_inline();
  for (const ibv_data_buf& buffer : std::span(list, count)) {
    if (const auto added = posting->add_inline(buffer.addr, buffer.length); !added)
      return note(*builder, to_errno(added.error()));
  }
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
  const ibv_data_buf buffer{.addr = address, .length = length};
  wr_set_inline_data_list(qp, 1, &buffer);
}

void wr_start(ibv_qp_ex* c_qp) {
  const Qp& qp = Qp::of(c_qp);
  WorkBuilder& builder = *qp.builder;
  if (is_dead(qp.generation)) {
    builder.error = EIO;
    builder.request = nullptr;
    return;
  }
  nic::SendPosting posting = qp.nic->post_sends(qp.pair);
  builder.posting = std::move(posting);
  builder.request = nullptr;
  builder.error = 0;
}

/// Takes the posting out of the builder, which is whose posting has the posters' lock: it is not to
/// be touched once that is gone.
std::optional<nic::SendPosting> take_posting(WorkBuilder& builder) {
  std::optional<nic::SendPosting> taken = std::move(builder.posting);
  builder.posting.reset();
  return taken;
}

/// All or nothing: an error aborts the entire posting (ibv_wr_post(3)).
int wr_complete(ibv_qp_ex* c_qp) {
  Qp& qp = Qp::of(c_qp);
  hand_over(&Cq::of(qp.qp_base.send_cq));
  end(*qp.builder);
  const int error = qp.builder->error;
  std::optional<nic::SendPosting> posting = take_posting(*qp.builder);
  if (error != 0) return error;
  if (!posting) return EINVAL;  // it was never begun
  const auto sent = qp.nic->send(qp.pair, *posting);
  return sent ? 0 : to_errno(sent.error());
}

void wr_abort(ibv_qp_ex* qp) { take_posting(*Qp::of(qp).builder); }

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
