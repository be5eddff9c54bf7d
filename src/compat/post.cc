// SPDX-License-Identifier: Apache-2.0
// The way in of the data path: ibv_post_send(3), ibv_post_recv(3), ibv_post_srq_recv(3).
// Nothing is allocated here.
#include <endian.h>

#include <cerrno>

#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/tsan.h"
#include "compat/work_request.h"

namespace verbena::compat {
namespace {

/// Fills in what belongs to the opcode.
int set_arguments(engine::SendRequest& request, const Qp& qp, const ibv_send_wr& wr) {
  switch (wr.opcode) {
    case IBV_WR_BIND_MW:
      if (wr.bind_mw.mw == nullptr || wr.bind_mw.mw->type != IBV_MW_TYPE_2) return EINVAL;
      return set_binding(request, qp.qp_base, *wr.bind_mw.mw, wr.bind_mw.rkey,
                         wr.bind_mw.bind_info);
    case IBV_WR_RDMA_WRITE_WITH_IMM: request.immediate = be32toh(wr.imm_data); [[fallthrough]];
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_WRITE:
      if (wr.opcode == IBV_WR_ATOMIC_WRITE && wr.num_sge <= 0) return EINVAL;
      request.remote_address = wr.wr.rdma.remote_addr;
      request.rkey = wr.wr.rdma.rkey;
      return 0;
    case IBV_WR_SEND_WITH_IMM: request.immediate = be32toh(wr.imm_data); return 0;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV: request.invalidate_rkey = wr.invalidate_rkey; return 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      request.remote_address = wr.wr.atomic.remote_addr;
      request.rkey = wr.wr.atomic.rkey;
      request.compare_or_add = wr.wr.atomic.compare_add;
      request.swap = wr.wr.atomic.swap;
      return 0;
    case IBV_WR_SEND: return 0;
    default: return EINVAL;
  }
}

/// Makes the request that a program's is, but for its pieces. EINVAL when it has more of them than
/// it may.
int convert(const Qp& qp, const ibv_send_wr& wr, engine::SendRequest& request) {
  request.id = wr.wr_id;
  const ibv_qp_type type = qp.qp_base.qp_type;
  if (const int error = set_opcode(request, type, number_of(wr.opcode)); error != 0) return error;
  if (const int error = set_flags(request, type, wr.send_flags); error != 0) return error;
  if (const int error = set_arguments(request, qp, wr); error != 0) return error;
  if (type == IBV_QPT_UD) {
    const auto& target = wr.wr.ud;
    if (const int error =
            set_target(request, qp.qp_base, target.ah, target.remote_qpn, target.remote_qkey);
        error != 0) {
      return error;
    }
  }
  if (type == IBV_QPT_XRC_SEND) {
    if (const int error = set_remote_srq(request, wr.qp_type.xrc.remote_srqn); error != 0)
      return error;
  }
  return is_list(wr.sg_list, wr.num_sge, qp.max_send_sge) ? 0 : EINVAL;
}

/// Why a request has no place: a mistake in it is told first.
int refusal(const Qp& qp, const ibv_send_wr& wr, const Error& why) {
  engine::SendRequest request;
  const int mistake = convert(qp, wr, request);
  return mistake != 0 ? mistake : to_errno(why);
}

int add(const Qp& qp, nic::SendPosting& posting, const ibv_send_wr& wr) {
  const auto begun = posting.begin();
  if (!begun) return refusal(qp, wr, begun.error());
  if (const int error = convert(qp, wr, **begun); error != 0) return error;
  copy_pieces(posting.make_pieces(static_cast<std::size_t>(wr.num_sge)), wr.sg_list);
  const auto ended = posting.end();
  return ended ? 0 : to_errno(ended.error());
}

/// A WRITE or READ alone that is one copy, made here and now: it needs no place in the send queue.
/// False: nothing has happened.
bool do_at_once(const Qp& qp, const ibv_send_wr& wr) {
  const bool writes = number_of(wr.opcode) == IBV_WR_RDMA_WRITE;
  const bool reads = number_of(wr.opcode) == IBV_WR_RDMA_READ;
  const bool plain = (writes || reads) && wr.num_sge == 1 &&
                     is_list(wr.sg_list, wr.num_sge, qp.max_send_sge) &&
                     (wr.send_flags & IBV_SEND_INLINE) == 0;
  if (!plain) return false;
  engine::Sge piece;
  copy_pieces(std::span(&piece, 1), wr.sg_list);
  // Not made anew: a copy looks at what is set here, and at `inline_data`, which never is. Whatever
  // is written has to be in memory before it begins.
  constinit static thread_local engine::SendWqe wqe [[gnu::tls_model("initial-exec")]];
  engine::SendRequest& request = wqe.request;
  wqe.length = piece.length;
  request.id = wr.wr_id;
  request.opcode = writes ? engine::SendOpcode::kWrite : engine::SendOpcode::kRead;
  request.signaled = (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  request.remote_address = wr.wr.rdma.remote_addr;
  request.rkey = wr.wr.rdma.rkey;
  request.pieces = std::span(&piece, 1);
  const bool done = qp.nic->do_at_once(qp.pair, wqe);
  request.pieces = {};
  return done;
}

/// A SEND alone, which leaves before it is written into the send queue. False: nothing has
/// happened.
bool send_short(const Qp& qp, nic::SendPosting& posting, const ibv_send_wr& wr) {
  const bool is_short = number_of(wr.opcode) == IBV_WR_SEND && wr.next == nullptr &&
                        wr.num_sge == 1 && is_list(wr.sg_list, wr.num_sge, qp.max_send_sge) &&
                        (wr.send_flags & (IBV_SEND_INLINE | IBV_SEND_FENCE)) == 0;
  if (!is_short) return false;
  engine::ShortRequest request{.id = wr.wr_id,
                               .signaled = (wr.send_flags & IBV_SEND_SIGNALED) != 0,
                               .solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0};
  copy_pieces(std::span(&request.piece, 1), wr.sg_list);
  return qp.nic->send_short(qp.pair, posting, request);
}

/// Posts a chain up to the first request that fails, which `wr` is then; what went before it stays
/// posted.
int post_chain(const Qp& qp, ibv_send_wr*& wr) {
  nic::SendPosting posting = qp.nic->post_sends(qp.pair);
  if (qp.pair->sends_short() && wr != nullptr && send_short(qp, posting, *wr)) return 0;
  ibv_send_wr* const first = wr;
  int error = 0;
  while (wr != nullptr && (error = add(qp, posting, *wr)) == 0) wr = wr->next;
  if (const auto sent = qp.nic->send(qp.pair, posting); !sent) [[unlikely]] {
    wr = first;
    return to_errno(sent.error());
  }
  return error;
}

/// `queue` is a work queue or a shared receive queue, which takes at most `max_sge` pieces.
template <typename Queue>
int post_one(nic::Nic& nic, Queue* queue, std::uint32_t max_sge, const ibv_recv_wr& wr) {
  if (!is_list(wr.sg_list, wr.num_sge, max_sge)) return EINVAL;
  PieceScratch pieces(static_cast<std::size_t>(wr.num_sge));
  copy_pieces(pieces.view(), wr.sg_list);
  const auto posted = nic.post_receive(queue, {.id = wr.wr_id, .pieces = pieces.view()});
  return posted ? 0 : to_errno(posted.error());
}

/// Posts a chain, each by `post`, up to the first request that fails; what went before it stays
/// posted.
template <typename Post>
int post_each(ibv_recv_wr* wr, ibv_recv_wr** bad_wr, Post post) {
  int error = 0;
  while (wr != nullptr && (error = post(*wr)) == 0) wr = wr->next;
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  return error;
}

int add(const Qp& qp, nic::ReceivePosting& posting, const ibv_recv_wr& wr) {
  if (!is_list(wr.sg_list, wr.num_sge, qp.max_receive_sge)) return EINVAL;
  const auto pieces = posting.begin(static_cast<std::size_t>(wr.num_sge));
  if (!pieces) return to_errno(pieces.error());
  copy_pieces(*pieces, wr.sg_list);
  posting.end(wr.wr_id);
  return 0;
}

int post_receives(const Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  nic::ReceivePosting posting = qp.nic->post_receives(qp.pair);
  return post_each(wr, bad_wr, [&](const ibv_recv_wr& each) { return add(qp, posting, each); });
}

template <typename Request>
int refuse(Request* wr, Request** bad_wr, int error) {
  if (bad_wr != nullptr) *bad_wr = wr;
  return error;
}

}  // namespace

int post_send(ibv_qp* c_qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) noexcept {
  Qp& qp = Qp::of(c_qp);
  if (is_dead(qp.generation)) return refuse(wr, bad_wr, EIO);
  if (c_qp->send_cq == nullptr) return refuse(wr, bad_wr, EINVAL);
  hand_over(&Cq::of(c_qp->send_cq));
  if (qp.pair->copies() && wr != nullptr && wr->next == nullptr && do_at_once(qp, *wr)) return 0;
  const int error = post_chain(qp, wr);
  return error == 0 ? 0 : refuse(wr, bad_wr, error);
}

int post_receive(ibv_qp* c_qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept {
  Qp& qp = Qp::of(c_qp);
  if (is_dead(qp.generation)) return refuse(wr, bad_wr, EIO);
  if (c_qp->recv_cq == nullptr) return refuse(wr, bad_wr, EINVAL);
  hand_over(&Cq::of(c_qp->recv_cq));
  const int error = post_receives(qp, wr, bad_wr);
  qp.nic->ring_receives(qp.pair);
  return error;
}

int post_wq_receive(ibv_wq* c_wq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept {
  Wq& wq = Wq::of(c_wq);
  if (is_dead(wq.generation)) return refuse(wr, bad_wr, EIO);
  hand_over(&Cq::of(wq.cq));
  return post_each(wr, bad_wr, [&wq](const ibv_recv_wr& each) {
    return post_one(*wq.nic, wq.queue, wq.max_sge, each);
  });
}

int post_srq_receive(ibv_srq* c_srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept {
  Srq& srq = Srq::of(c_srq);
  if (is_dead(srq.generation)) return refuse(wr, bad_wr, EIO);
  return post_each(wr, bad_wr, [&srq](const ibv_recv_wr& each) {
    return post_one(*srq.nic, srq.queue, srq.max_sge, each);
  });
}

}  // namespace verbena::compat
