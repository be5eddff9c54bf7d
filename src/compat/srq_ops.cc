// SPDX-License-Identifier: Apache-2.0
// Receives that have tags: ibv_post_srq_ops(3).
#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/scratch.h"
#include "compat/work_request.h"

namespace verbena::compat {
namespace {

static_assert(static_cast<int>(nic::TagRequest::Kind::kAdd) == IBV_WR_TAG_ADD);
static_assert(static_cast<int>(nic::TagRequest::Kind::kDelete) == IBV_WR_TAG_DEL);
static_assert(static_cast<int>(nic::TagRequest::Kind::kSync) == IBV_WR_TAG_SYNC);

int serve_one(Srq& srq, ibv_ops_wr& wr) {
  constexpr auto kKnown = static_cast<std::uint32_t>(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC);
  const auto flags = static_cast<std::uint32_t>(wr.flags);
  const std::uint32_t kind = number_of(wr.opcode);
  if (kind > IBV_WR_TAG_SYNC || (flags & ~kKnown) != 0) return EINVAL;
  const auto& add = wr.tm.add;
  const bool adds = kind == IBV_WR_TAG_ADD;
  if (adds && (add.num_sge < 0 || static_cast<std::uint32_t>(add.num_sge) > nic::kMaxTagPieces))
    return EINVAL;
  PieceScratch pieces(adds ? static_cast<std::size_t>(add.num_sge) : 0);
  if (adds) copy_pieces(pieces.view(), add.sg_list);
  nic::TagRequest request{
      .id = wr.wr_id,
      .kind = static_cast<nic::TagRequest::Kind>(kind),
      .signaled = (flags & IBV_OPS_SIGNALED) != 0,
      .handle = wr.tm.handle,
      .receive = {.id = add.recv_wr_id, .tag = add.tag, .mask = add.mask, .pieces = pieces.view()}};
  if ((flags & IBV_OPS_TM_SYNC) != 0) request.handled = wr.tm.unexpected_cnt;
  const auto served = srq.nic->serve(srq.queue, request);
  if (!served) return to_errno(served.error());
  if (adds) wr.tm.handle = request.handle;
  return 0;
}

}  // namespace

int post_srq_ops(ibv_srq* c_srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) noexcept {
  Srq& srq = Srq::of(c_srq);
  int error = is_dead(srq.generation) ? EIO : 0;
  while (error == 0 && wr != nullptr) {
    error = serve_one(srq, *wr);
    if (error == 0) wr = wr->next;
  }
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  return error;
}

}  // namespace verbena::compat
