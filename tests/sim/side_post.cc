// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "sim/side.h"

// When and how a connection's end posts: what must come of it is known when it is posted.

namespace verbena::sim {

bool Side::traffic() {
  bool active = false;
  if (draining_send_queue_) drain_send_queue();
  active = post_receives() || active;
  if (connection_.closing || world_.winding_up()) {
    if (may_close() && peer_->state_ == State::kReady) {
      say("closes");
      connection_.broken = true;
      return true;
    }
    return flush_unsignalled() || active;
  }
  if (epoch_operations_ > epoch_limit_) {
    connection_.closing = true;
    return true;
  }
  if (doomed_ || failed_) return active;
  // Without a time-out, what arrives before the peer is in RTR is lost for ever.
  if (terms_.timeout == 0 && peer_->state_ == State::kInit) return active;
  tend_windows();
  // A fast burst now and then, else some at a time.
  const std::uint64_t bursts = random().below(4) == 0 ? 6 : 1;
  for (std::uint64_t i = 0; i < bursts && !doomed_; ++i) {
    if (random().below(3) == 0) continue;
    active = post_sends() || active;
  }
  return active;
}

/// Unsignalled requests at the end are known to have completed only by one behind them.
bool Side::flush_unsignalled() {
  if (sends_.empty() || failed_ || doomed_ || draining_send_queue_ || !room()) return false;
  if (sends_.back().signaled || terms_.signal_all || !peer_->zone_) return false;
  const bool writes = (peer_->terms_.access & IBV_ACCESS_REMOTE_WRITE) != 0;
  SendWork work = make_work(writes ? Kind::kWrite : Kind::kRead);
  work.signaled = true;
  unsignaled_ = 0;
  sends_.push_back(work);
  post({work});
  return true;
}

std::int64_t Side::credit() const {
  return static_cast<std::int64_t>(peer_->receives_.size()) -
         static_cast<std::int64_t>(peer_->inbound_.size());
}

// Sends.

bool Side::post_sends() {
  if (maybe_misdeed()) return true;
  if (!draining_send_queue_ && random().chance_ppm(4'000) && peer_->state_ == State::kReady) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    process_.forget_event(qp_number_, IBV_EVENT_SQ_DRAINED);
    if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0) {
      draining_send_queue_ = true;
      begun_before_ = next_number_;
      say("to SQD before {}", begun_before_);
    }
  }
  std::vector<SendWork> works;
  std::int64_t messages = 0;
  if (random().below(4) == 0 && peer_->zone_) begin_row();
  const std::uint64_t count = random().between(1, row_ ? 12 : 4);
  while (works.size() < count && room()) {
    // Who starves uses up the last receives soon.
    const Kind kind = row_                                 ? row_->kind
                      : starves_ && random().below(2) == 0 ? Kind::kSend
                                                           : choose_kind();
    if (is_message(kind) && terms_.prompt && credit() <= messages) break;
    messages += is_message(kind) ? 1 : 0;
    works.push_back(make_work(kind));
    sends_.push_back(works.back());  // the next one's model needs it
  }
  row_.reset();
  if (works.empty()) return false;
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i] = sends_[sends_.size() - works.size() + i];
  }
  post(std::move(works));
  return true;
}

/// Ends SQD when the queue pair says that it has drained.
void Side::drain_send_queue() {
  if (failed_ || connection_.broken || doomed_) return;
  if (!process_.had_event(qp_number_, IBV_EVENT_SQ_DRAINED)) return;
  check_drained();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  draining_send_queue_ = false;
  say("from SQD to RTS");
  static_cast<void>(ibv_modify_qp(qp_, &attr, IBV_QP_STATE));  // it may be in ERR meanwhile
}

/// What the peer is to get of it.
void Side::commit(SendWork& work) {
  if (!is_message(work.kind) || work.unseen) return;
  peer_->inbound_.push_back({.number = work.number,
                             .kind = work.kind,
                             .data = work.kind == Kind::kWriteImm ? nullptr : work.data,
                             .length = work.length,
                             .immediate = work.kind == Kind::kSendInv ? work.rkey : work.immediate,
                             .solicited = work.solicited,
                             .window = work.window.value_or(0),
                             .queue = work.queue});
}

/// Posts requests that are in `sends_` already, in one call but for bindings.
void Side::post(std::vector<SendWork> works) {
  std::vector<SendWork> list;
  for (SendWork& work : works) {
    if (work.kind != Kind::kBind) {
      list.push_back(std::move(work));
      continue;
    }
    post_list(std::exchange(list, {}));
    bind(work);
    count_posted();
  }
  post_list(std::move(list));
}

void Side::count_posted() {
  ++epoch_operations_;
  ++world_.counters().operations;
  world_.posted();
}

void Side::fill(ibv_send_wr& wr, const SendWork& work) {
  constexpr std::array kOpcodes = {IBV_WR_SEND,
                                   IBV_WR_SEND_WITH_IMM,
                                   IBV_WR_RDMA_WRITE,
                                   IBV_WR_RDMA_WRITE_WITH_IMM,
                                   IBV_WR_RDMA_READ,
                                   IBV_WR_ATOMIC_CMP_AND_SWP,
                                   IBV_WR_ATOMIC_FETCH_AND_ADD,
                                   IBV_WR_SEND_WITH_INV,
                                   IBV_WR_BIND_MW,
                                   IBV_WR_LOCAL_INV};
  wr.wr_id = work.id;
  wr.opcode = kOpcodes[static_cast<std::size_t>(work.kind)];
  wr.send_flags = flag_if(work.signaled, IBV_SEND_SIGNALED) |
                  flag_if(work.solicited, IBV_SEND_SOLICITED) |
                  flag_if(work.fence, IBV_SEND_FENCE) | flag_if(work.inline_data, IBV_SEND_INLINE);
  wr.imm_data = htonl(work.immediate);
  if (work.kind == Kind::kSendInv || work.kind == Kind::kLocalInv) wr.invalidate_rkey = work.rkey;
  if (is_atomic(work.kind)) {
    wr.wr.atomic = {.remote_addr = work.remote_address,
                    .compare_add = work.kind == Kind::kAdd ? work.operand : work.compare,
                    .swap = work.operand,
                    .rkey = work.rkey};
  } else {
    wr.wr.rdma = {.remote_addr = work.remote_address, .rkey = work.rkey};
  }
  if (terms_.extended) wr.qp_type.xrc.remote_srqn = work.queue_number;
  world_.trace().mix_all(work.id, work.kind, work.length, wr.send_flags);
  say("send {} #{}: {} {} bytes psn {}{}{}{}{}{}{}", work.id, work.number, to_string(work.kind),
      work.length, work.first_psn,
      terms_.extended ? fmt::format(" for {:#08x}", work.queue_number) : "",
      work.fence ? " fence" : "", work.inline_data ? " inline" : "",
      work.signaled ? "" : " unsignalled", work.solicited ? " solicited" : "",
      work.misdeed != Misdeed::kNone ? " WRONG" : (work.dead ? " dead" : ""));
}

void Side::post_list(std::vector<SendWork> works) {
  if (works.empty()) return;
  std::vector<std::vector<ibv_sge>> sges(works.size());
  std::vector<ibv_send_wr> wrs(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) {
    SendWork& work = works[i];
    for (const Piece& piece : work.pieces) {
      sges[i].push_back(
          {process_.arena().address(piece.range.offset), piece.range.size, piece.lkey});
    }
    ibv_send_wr& wr = wrs[i];
    wr = {};
    wr.next = i + 1 < works.size() ? &wrs[i + 1] : nullptr;
    wr.sg_list = sges[i].data();
    wr.num_sge = static_cast<int>(sges[i].size());
    if (!work.dead && work.misdeed == Misdeed::kNone) commit(work);
    fill(wr, work);
  }
  ibv_send_wr* bad = nullptr;
  if (const int status = ibv_post_send(qp_, wrs.data(), &bad); status != 0) {
    fail(fmt::format("ibv_post_send: {} at request {} of {}", std::strerror(status),
                     bad - wrs.data(), works.size()));
  }
  for (const SendWork& work : works) {
    // Inline data may be used again at once.
    if (work.inline_data) {
      for (const Piece& piece : work.pieces) {
        std::vector<std::byte> other(piece.range.size);
        fill_pattern(other, random());
        process_.arena().write(piece.range.offset, other);
      }
    }
    count_posted();
  }
}

}  // namespace verbena::sim
