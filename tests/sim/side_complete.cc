// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "sim/side.h"

// What completes at a connection's end, held against what must.

namespace verbena::sim {
namespace {

/// How soon after a solicited message's completion at its sender an event must have woken the
/// receiver's thread.
constexpr Duration kNoticeTime = std::chrono::milliseconds(3);

std::uint64_t load_word(ConstBytes bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

ibv_wc_opcode opcode_of(Kind kind) {
  constexpr std::array kOpcodes = {
      IBV_WC_SEND,      IBV_WC_SEND,      IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ,
      IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_SEND,       IBV_WC_BIND_MW,    IBV_WC_LOCAL_INV};
  return kOpcodes[static_cast<std::size_t>(kind)];
}

}  // namespace

void Side::complete(const ibv_wc& completion) {
  const bool received = (completion.wr_id & 1) != 0;
  if (completion.qp_num != (received ? target_number_ : qp_number_)) {
    fail(fmt::format("completion {} names qp {:#x}", completion.wr_id, completion.qp_num));
  }
  if (received) return complete_receive(completion);
  complete_send(completion);
}

// Sends.

void Side::complete_send(const ibv_wc& completion) {
  say("completion {}: {}", completion.wr_id, status_name(completion.status));
  if (state_ != State::kReady && state_ != State::kDraining) {
    fail(fmt::format("completion of send {} while nothing is posted", completion.wr_id));
  }
  const auto found = std::ranges::find(sends_, completion.wr_id, &SendWork::id);
  if (found == sends_.end())
    fail(fmt::format("send {} completes and is not posted", completion.wr_id));
  const bool error = completion.status != IBV_WC_SUCCESS;
  if (failed_ && completion.status != IBV_WC_WR_FLUSH_ERR) {
    fail(fmt::format("send {} ends with {} after an earlier failure", completion.wr_id,
                     status_name(completion.status)));
  }
  // Unsignalled requests before it have succeeded silently; after a failure all complete.
  while (sends_.front().id != completion.wr_id) {
    SendWork& work = sends_.front();
    if (failed_ || work.signaled || terms_.signal_all) {
      fail(fmt::format("send {} completes before send {}", completion.wr_id, work.id));
    }
    succeed(work);
    sends_.pop_front();
  }
  SendWork work = std::move(sends_.front());
  sends_.pop_front();
  if (error) {
    fail_send(work, completion.status);
    release(work);
    return;
  }
  if (!work.signaled && !terms_.signal_all) {
    fail(fmt::format("send {} is unsignalled and completes", work.id));
  }
  if (completion.opcode != opcode_of(work.kind)) {
    fail(fmt::format("send {} completes as opcode {}", work.id,
                     static_cast<int>(completion.opcode)));
  }
  succeed(work);
}

void Side::succeed(SendWork& work) {
  if (work.misdeed != Misdeed::kNone || work.dead) {
    fail(fmt::format("send {} ('{}') succeeds", work.id, to_string(work.misdeed)));
  }
  if (draining_send_queue_ && work.number >= begun_before_ && !connection_.broken) {
    fail(fmt::format("send {} was posted in SQD and has executed there", work.id));
  }
  last_success_ = work.number;
  world_.checker().alive(process_.address(), qp_number_, work.posted);
  if (peer_->zone_ && peer_->state_ != State::kDown) {
    peer_->zone_->executed(work.number);
    if (const auto wrong = peer_->zone_->check(never_from_, spoil())) {
      fail(fmt::format("after send {}: {}", work.id, *wrong));
    }
  }
  if (work.kind == Kind::kRead || (is_atomic(work.kind) && work.word < 0)) check_read(work);
  if (work.word >= 0) note_change(work, Word::Change::Known::kYes);
  if (is_message(work.kind)) expect_notice(work);
  settle_window(work);
  release(work);
}

/// What came is what was there, or for bytes that later requests changed, what they made of it.
void Side::check_read(const SendWork& work) {
  std::size_t at = 0;
  for (const Piece& piece : work.pieces) {
    const ConstBytes got = process_.arena().bytes(piece.range);
    if (std::memcmp(got.data(), work.data->data() + at, got.size()) != 0) {
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::size_t offset = at + i;
        if (got[i] == (*work.data)[offset]) continue;
        const auto there = static_cast<std::uint32_t>(work.target.offset + offset);
        const bool allowed = std::ranges::any_of(work.alternatives, [&](const Store& store) {
          return store.explains(there, got[i], spoil());
        });
        if (allowed) continue;
        fail(fmt::format("{} {} brought {:#04x} at byte {} of {}, must be {:#04x}",
                         to_string(work.kind), work.id, std::to_integer<unsigned>(got[i]), offset,
                         work.length, std::to_integer<unsigned>((*work.data)[offset])));
      }
    }
    at += got.size();
  }
}

/// Gives up what the request used: what it was to bring is there, or lies in unsettled bytes.
void Side::release(SendWork& work) {
  leave_window(work);
  // Of a long READ that leaves its region the first parts may come.
  const bool wrong_read = work.kind == Kind::kRead && names_remote_memory(work.misdeed);
  const bool brings =
      !work.dead && (wrong_read || (work.misdeed == Misdeed::kNone && is_atomic(work.kind)));
  if (!brings) return;
  for (const Piece& piece : work.pieces) {
    process_.arena().adopt(piece.range);
    process_.arena().settle(piece.range);
  }
}

void Side::fail_send(SendWork& work, ibv_wc_status status) {
  world_.trace().mix_all(work.id, status);
  if (!failed_ && !may_fail_with(work, status)) {
    fail(fmt::format("send {} ({}, '{}') ends with {}{}", work.id, to_string(work.kind),
                     to_string(work.misdeed), status_name(status),
                     doomed_ ? fmt::format(", must be {}", status_name(expected_error_)) : ""));
  }
  const bool first = !failed_;
  failed_ = true;
  connection_.broken = true;
  const bool refused = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
                       status == IBV_WC_REM_OP_ERR;
  if (first && refused) {
    // The responder executed everything before it and nothing behind it.
    never_from_ = std::min(never_from_, work.number + (work.begins ? 1 : 0));
    const ibv_event_type event = status == IBV_WC_REM_ACCESS_ERR    ? IBV_EVENT_QP_ACCESS_ERR
                                 : status == IBV_WC_REM_INV_REQ_ERR ? IBV_EVENT_QP_REQ_ERR
                                                                    : IBV_EVENT_QP_FATAL;
    // A READ that was asked for again is refused without one; its window may be gone by then.
    const bool again = work.kind == Kind::kRead &&
                       world_.checker().transmissions(process_.address(), qp_number_) > 1;
    if (peer_->process_.up() && peer_->state_ == State::kReady && !again &&
        world_.now() > world_.scheduler().paused_until(peer_->process_.index())) {
      peer_->process_.expect_event(peer_->target_number_, event);
    }
  }
  if (first) check_state(qp_, IBV_QPS_ERR);
  if (work.word >= 0) {
    note_change(work, work.number >= never_from_ ? Word::Change::Known::kNever
                                                 : Word::Change::Known::kMaybe);
  }
  // A READ that failed may have brought a part of what it was to bring.
  if (work.kind == Kind::kRead && !work.dead && work.misdeed == Misdeed::kNone) {
    std::size_t at = 0;
    for (const Piece& piece : work.pieces) {
      const ConstBytes got = process_.arena().bytes(piece.range);
      const ConstBytes old = process_.arena().shadow(piece.range);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (got[i] == old[i] || got[i] == (*work.data)[at + i] || !work.alternatives.empty() ||
            spoil().covers(at + i, work.length))
          continue;
        fail(fmt::format("failed READ {} left {:#04x} at byte {}", work.id,
                         std::to_integer<unsigned>(got[i]), at + i));
      }
      at += got.size();
    }
  }
}

bool Side::may_fail_with(const SendWork& work, ibv_wc_status status) const {
  if (work.misdeed != Misdeed::kNone && status == expected_error_) return true;
  // That a peer posts no receives leaves it alive.
  const bool provoked = doomed_ && misdeed_ != Misdeed::kNoReceive;
  const bool peer_may_be_in_error = provoked || peer_->doomed_ || peer_->failed_ ||
                                    connection_.broken || peer_->receive_failed_ ||
                                    peer_->bad_receive_;
  switch (status) {
    case IBV_WC_WR_FLUSH_ERR:
      // What becomes of an XRC target leaves the queue pair that sends alone.
      if (terms_.extended) return connection_.broken;
      // Our own queue pair went to ERR: by us, or because we refused a request of the peer's.
      return connection_.broken || peer_->doomed_ || bad_receive_ || receive_failed_;
    case IBV_WC_RETRY_EXC_ERR: {
      if (terms_.timeout == 0) return false;
      if (peer_may_be_in_error || connection_.silent) return true;
      // Without a reason it takes bad luck, which gentle runs with all retries never have.
      const std::uint32_t times = world_.checker().transmissions(process_.address(), qp_number_);
      return may_exhaust() && times > terms_.retry_count;
    }
    case IBV_WC_REM_OP_ERR: return is_message(work.kind) && peer_->bad_receive_;
    default: return false;
  }
}

/// Retries may run out by bad luck alone.
bool Side::may_exhaust() const {
  const Plan& plan = world_.plan();
  return plan.loses() && !plan.patient && (!plan.gentle || terms_.retry_count < 7);
}

void Side::note_change(const SendWork& work, Word::Change::Known known) {
  if (work.word < 0) return;
  Word& word = peer_->process_.words()[static_cast<std::size_t>(work.word)];
  const auto change = std::ranges::find(word.changes, work.id, &Word::Change::id);
  if (change == word.changes.end()) return;  // of an earlier life of the peer
  change->known = known;
  if (known == Word::Change::Known::kYes) {
    change->original = load_word(process_.arena().bytes(work.pieces.front().range));
  }
}

/// The receiver has the message's completion now, and if its thread sleeps, an event.
void Side::expect_notice(const SendWork& work) {
  if (peer_->state_ != State::kReady || work.unseen) return;
  const Notice notice = peer_->process_.notice(peer_->receive_cq(work));
  if (notice == Notice::kPoll || (notice == Notice::kSolicited && !work.solicited)) return;
  const auto waits = std::ranges::find(peer_->inbound_, work.number, &Message::number);
  if (waits == peer_->inbound_.end()) return;  // it has it
  peer_->notifies_.push_back({work.number, world_.now() + kNoticeTime});
}

}  // namespace verbena::sim
