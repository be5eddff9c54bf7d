// SPDX-License-Identifier: Apache-2.0
//
// The responder's requests that are answered with a result that is saved: atomics, ATOMIC WRITE and
// FLUSH.
#include <algorithm>
#include <atomic>
#include <optional>

#include "base/fault_guard.h"
#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"
#include "engine/responder.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kAtomicSize = 8;

/// Does an atomic to an aligned word and returns what it was before; nothing when its memory went
/// away.
std::optional<std::uint64_t> change_word(Bytes bytes, const wire::AtomicEth& request, bool adds) {
  std::uint64_t original = request.compare;
  const auto change = [&] {
    touch_word(bytes.data());
    std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(bytes.data()));
    if (adds) {
      original = word.fetch_add(request.swap_or_add);
    } else {
      word.compare_exchange_strong(original, request.swap_or_add);
    }
  };
  if (!guarded(bytes.data(), bytes.size(), change)) return std::nullopt;
  return original;
}

}  // namespace

void Responder::execute_atomic(const wire::Packet& packet) {
  const wire::AtomicEth& request = packet.atomic_eth;
  if (!start_rd_atomic(kRemoteAtomic)) return;
  if (request.address % kAtomicSize != 0) {
    return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  }
  const auto bytes = core_.memory.lookup_remote(request.rkey, request.address, kAtomicSize,
                                                kRemoteAtomic, user(target_.pd));
  if (!bytes || reinterpret_cast<std::uintptr_t>(bytes->data()) % kAtomicSize != 0) {
    return refuse(wire::NakCode::kRemoteAccessError, Status::kRemoteAccessError);
  }
  if (answers_.size() >= answers_limit_) return;

  const bool adds = packet.info().operation == wire::Operation::kFetchAdd;
  const auto done = change_word(*bytes, request, adds);
  if (!done) return refuse(wire::NakCode::kRemoteAccessError, Status::kRemoteAccessError);
  finish_atomic(packet.bth.psn, Answer::Kind::kAtomic, *done);
}

/// Eight bytes that become visible at once. The rights are those of a WRITE, the room for answers
/// and the replay of duplicates those of an atomic (Annex A19; Linux's rxe does both so).
void Responder::execute_atomic_write(const wire::Packet& packet) {
  const wire::Reth& reth = packet.reth;
  if (!start_rd_atomic(kRemoteWrite)) return;
  if (packet.payload.size() != kAtomicSize || reth.dma_length != kAtomicSize ||
      reth.address % kAtomicSize != 0) {
    return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  }
  const auto bytes = core_.memory.lookup_remote(reth.rkey, reth.address, kAtomicSize, kRemoteWrite,
                                                user(target_.pd));
  const bool usable = bytes && reinterpret_cast<std::uintptr_t>(bytes->data()) % kAtomicSize == 0;
  if (usable && answers_.size() >= answers_limit_) return;
  if (!usable || !place(bytes->data(), packet.payload))
    return refuse(wire::NakCode::kRemoteAccessError, Status::kRemoteAccessError);
  qp_.count(&Counters::bytes_received, kAtomicSize);
  finish_atomic(packet.bth.psn, Answer::Kind::kPlaced, 0);
}

/// What was placed before is visible to the whole machine from then on. Rights of its own, and no
/// others, of the queue pair and of the region; room for answers and replay as for an atomic; all
/// of the region has no range to be checked (Annex A19, as Linux's rxe does it). What a request
/// says in reserved bits nobody knows, so that it is invalid.
void Responder::execute_flush(const wire::Packet& packet) {
  const wire::Feth& feth = packet.feth;
  const wire::Reth& reth = packet.reth;
  constexpr unsigned kPlacements = wire::Feth::kGlobalVisibility | wire::Feth::kPersistence;
  if (feth.placement == 0 || (feth.placement & ~kPlacements) != 0 ||
      feth.selectivity > wire::Feth::kRegion)
    return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  std::uint32_t rights = 0;
  if ((feth.placement & wire::Feth::kGlobalVisibility) != 0) rights |= kFlushGlobal;
  if ((feth.placement & wire::Feth::kPersistence) != 0) rights |= kFlushPersistent;
  if (!start_rd_atomic(rights)) return;
  const bool usable =
      feth.selectivity == wire::Feth::kRegion
          ? core_.memory.check_remote(reth.rkey, rights, user(target_.pd)).has_value()
          : core_.memory
                .lookup_remote(reth.rkey, reth.address, reth.dma_length, rights, user(target_.pd))
                .has_value();
  if (!usable) return refuse(wire::NakCode::kRemoteAccessError, Status::kRemoteAccessError);
  if (answers_.size() >= answers_limit_) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  finish_atomic(packet.bth.psn, Answer::Kind::kPlaced, 0);
}

/// What a duplicate will be answered with, and the answer.
void Responder::finish_atomic(std::uint32_t psn, Answer::Kind kind, std::uint64_t original) {
  msn_ = (msn_ + 1) & wire::kMask24;
  const SavedAtomic saved{.kind = kind, .psn = psn, .msn = msn_, .original = original};
  const std::uint32_t most =
      mutant(Mutant::kSavedAtomicsTooFew) ? 1 : qp_.attributes().max_dest_rd_atomic;
  if (saved_.size() < most) {
    saved_.push_back(saved);
  } else {
    saved_[saved_next_] = saved;
    saved_next_ = (saved_next_ + 1) % saved_.size();
  }
  static_cast<void>(push({.kind = kind, .psn = psn, .msn = msn_, .original = original}));
  expected_psn_ = psn_add(expected_psn_, 1);
}

/// The saved result is sent again; one that is not saved any more is dropped.
void Responder::duplicate_atomic(const wire::Packet& packet) {
  const std::uint32_t psn = packet.bth.psn;
  const auto saved = std::ranges::find(saved_, psn, &SavedAtomic::psn);
  if (saved == saved_.end()) return;
  const auto same = [&](const Answer& answer) {
    return answer.kind == saved->kind && answer.psn == psn;
  };
  if (std::ranges::any_of(answers_, same)) return;
  std::uint64_t original = saved->original;
  if (mutant(Mutant::kDuplicateAtomicExecutes)) {
    const wire::AtomicEth& request = packet.atomic_eth;
    const auto bytes = core_.memory.lookup_remote(request.rkey, request.address, kAtomicSize,
                                                  kRemoteAtomic, user(target_.pd));
    if (bytes && packet.info().operation == wire::Operation::kFetchAdd) {
      original = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(bytes->data()))
                     .fetch_add(request.swap_or_add);
    }
  }
  if (waiting(true) < std::max<std::uint32_t>(qp_.attributes().max_dest_rd_atomic, 1)) {
    static_cast<void>(push({.kind = saved->kind,
                            .duplicate = true,
                            .psn = psn,
                            .msn = saved->msn,
                            .original = original}));
  }
}

}  // namespace verbena::engine
