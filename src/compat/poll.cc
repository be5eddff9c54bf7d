// SPDX-License-Identifier: Apache-2.0
// Polling completions: ibv_poll_cq(3).
#include <endian.h>
#include <sched.h>

#include <cerrno>

#include "compat/cq.h"
#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/tsan.h"
#include "nic/polling.h"

namespace verbena::compat {
namespace {

constexpr int of(engine::Status status) { return static_cast<int>(status); }
static_assert(of(engine::Status::kSuccess) == IBV_WC_SUCCESS);
static_assert(of(engine::Status::kLocalLengthError) == IBV_WC_LOC_LEN_ERR);
static_assert(of(engine::Status::kLocalQpOperationError) == IBV_WC_LOC_QP_OP_ERR);
static_assert(of(engine::Status::kLocalProtectionError) == IBV_WC_LOC_PROT_ERR);
static_assert(of(engine::Status::kFlushError) == IBV_WC_WR_FLUSH_ERR);
static_assert(of(engine::Status::kBadResponseError) == IBV_WC_BAD_RESP_ERR);
static_assert(of(engine::Status::kLocalAccessError) == IBV_WC_LOC_ACCESS_ERR);
static_assert(of(engine::Status::kRemoteInvalidRequest) == IBV_WC_REM_INV_REQ_ERR);
static_assert(of(engine::Status::kRemoteAccessError) == IBV_WC_REM_ACCESS_ERR);
static_assert(of(engine::Status::kRemoteOperationError) == IBV_WC_REM_OP_ERR);
static_assert(of(engine::Status::kRetryExceeded) == IBV_WC_RETRY_EXC_ERR);
static_assert(of(engine::Status::kRnrRetryExceeded) == IBV_WC_RNR_RETRY_EXC_ERR);
static_assert(of(engine::Status::kRemoteAborted) == IBV_WC_REM_ABORT_ERR);
static_assert(of(engine::Status::kFatalError) == IBV_WC_FATAL_ERR);
static_assert(of(engine::Status::kGeneralError) == IBV_WC_GENERAL_ERR);
static_assert(of(engine::Status::kTagError) == IBV_WC_TM_ERR);
static_assert(of(engine::Status::kRendezvousIncomplete) == IBV_WC_TM_RNDV_INCOMPLETE);

constexpr int of(engine::CompletionOpcode opcode) { return static_cast<int>(opcode); }
static_assert(of(engine::CompletionOpcode::kSend) == IBV_WC_SEND);
static_assert(of(engine::CompletionOpcode::kWrite) == IBV_WC_RDMA_WRITE);
static_assert(of(engine::CompletionOpcode::kRead) == IBV_WC_RDMA_READ);
static_assert(of(engine::CompletionOpcode::kCompareSwap) == IBV_WC_COMP_SWAP);
static_assert(of(engine::CompletionOpcode::kFetchAdd) == IBV_WC_FETCH_ADD);
static_assert(of(engine::CompletionOpcode::kAtomicWrite) == IBV_WC_ATOMIC_WRITE);
static_assert(of(engine::CompletionOpcode::kLocalInvalidate) == IBV_WC_LOCAL_INV);
static_assert(of(engine::CompletionOpcode::kReceive) == IBV_WC_RECV);
static_assert(of(engine::CompletionOpcode::kReceiveWriteWithImm) == IBV_WC_RECV_RDMA_WITH_IMM);
static_assert(of(engine::CompletionOpcode::kTagAdd) == IBV_WC_TM_ADD);
static_assert(of(engine::CompletionOpcode::kTagDelete) == IBV_WC_TM_DEL);
static_assert(of(engine::CompletionOpcode::kTagSync) == IBV_WC_TM_SYNC);
static_assert(of(engine::CompletionOpcode::kTagReceive) == IBV_WC_TM_RECV);
static_assert(of(engine::CompletionOpcode::kNoTag) == IBV_WC_TM_NO_TAG);

/// So many polls in a row that found nothing, some 20 µs, and the processor is offered to others:
/// on a machine with more to do than processors the peer may be waiting for this very one, and
/// would get it only at the end of our time slice. With nobody waiting the offer costs a fraction
/// of a microsecond.
constexpr std::uint32_t kPatience = 64;

void note_empty(Cq& cq) {
  const std::uint32_t empty = cq.empty_polls.load(std::memory_order_relaxed) + 1;
  cq.empty_polls.store(empty, std::memory_order_relaxed);
  if (empty % kPatience == 0) ::sched_yield();
}

}  // namespace

unsigned int wc_flags_of(const engine::Completion& completion) {
  unsigned int flags = 0;
  if (completion.with_grh) flags |= IBV_WC_GRH;
  if (completion.with_immediate) flags |= IBV_WC_WITH_IMM;
  if (completion.with_invalidate) flags |= IBV_WC_WITH_INV;
  if (completion.tag_matched) flags |= IBV_WC_TM_MATCH;
  if (completion.data_valid) flags |= IBV_WC_TM_DATA_VALID;
  if (completion.sync_required) flags |= IBV_WC_TM_SYNC_REQ;
  return flags;
}

namespace {

/// Sets all that an ibv_wc has, where the program wants it.
void fill_in(ibv_wc& wc, const engine::Completion& completion) {
  wc.wr_id = completion.id;
  wc.status = static_cast<ibv_wc_status>(completion.status);
  wc.opcode = static_cast<ibv_wc_opcode>(completion.opcode);
  wc.vendor_err = completion.vendor_error;
  wc.byte_len = completion.byte_count;
  wc.imm_data = completion.with_immediate ? htobe32(completion.immediate_or_key) : 0;
  if (completion.with_invalidate) wc.invalidated_rkey = completion.immediate_or_key;
  wc.qp_num = completion.qp_number;
  wc.src_qp = completion.source_qp;
  wc.wc_flags = wc_flags_of(completion);
  wc.pkey_index = completion.pkey_index;
  wc.slid = 0;
  wc.sl = completion.service_level;
  wc.dlid_path_bits = 0;
}

}  // namespace

int poll_cq(ibv_cq* c_cq, int num_entries, ibv_wc* wc) noexcept {
  Cq& cq = Cq::of(c_cq);
  if (is_dead(cq.generation)) return -EIO;
  if (num_entries <= 0) return 0;
  const auto polled = nic::poll(
      *cq.nic, *cq.queue, static_cast<std::size_t>(num_entries),
      [wc](const engine::Completion& completion, Time) mutable { fill_in(*wc++, completion); });
  if (!polled) [[unlikely]]
    return -to_errno(polled.error());
  if (*polled == 0) {
    note_empty(cq);
    return 0;
  }
  cq.empty_polls.store(0, std::memory_order_relaxed);
  take_over(&cq);
  return static_cast<int>(*polled);
}

}  // namespace verbena::compat
