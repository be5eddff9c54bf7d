// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/side.h"

// The receives of a connection's end, its own or shared with others, and what must come into them.

namespace verbena::sim {
namespace {

constexpr Duration kEventTime = std::chrono::milliseconds(1);

}  // namespace

// Posting.

bool Side::post_receives() {
  if (terms_.shared || terms_.extended || starving_peer_ || failed_ || receive_failed_)
    return false;
  if (receives_.size() >= terms_.receive_depth) return false;
  if (terms_.lazy && receives_.empty()) {
    // Late, by several RNR timers, so that senders have to ask again and again.
    if (receives_at_ == Time{}) {
      receives_at_ = world_.now() + Duration(static_cast<Duration::rep>(random().below(4'000'000)));
    }
    if (world_.now() < receives_at_) return false;
  }
  receives_at_ = {};
  const std::uint64_t room = terms_.receive_depth - receives_.size();
  const std::uint64_t count = random().between(1, room);
  for (std::uint64_t i = 0; i < count; ++i) post_receive();
  return true;
}

void Side::post_receive() {
  ReceiveWork work;
  work.id = world_.next_id() + 1;
  work.order = work.id;
  work.length = terms_.receive_size + static_cast<std::uint32_t>(random().below(32));
  const auto range = process_.arena().take(work.length, 1, random());
  if (!range) fail("the arena is full");
  work.buffer = std::make_shared<Buffer>(process_.arena(), *range);
  process_.arena().unsettle(*range);
  std::uint32_t left = work.length;
  std::uint32_t at = range->offset;
  const std::uint64_t pieces = random().between(1, terms_.receive_sge);
  for (std::uint64_t i = 0; i < pieces && left > 0; ++i) {
    const auto size =
        i + 1 == pieces ? left : static_cast<std::uint32_t>(random().between(1, left));
    work.pieces.push_back({{at, size}, process_.lkey()});
    at += size;
    left -= size;
  }
  if (!bad_receive_ && !peer_->terms_.prompt &&
      random().chance_ppm(world_.plan().misdeed_ppm / 8)) {
    bad_receive_ = work.bad_key = true;
    Piece& first = work.pieces.front();
    if (random().below(2) == 0) {
      first.lkey ^= 0x00515151;
    } else {
      first = {{Arena::kLost.offset, first.range.size}, process_.brittle().mr->lkey};
    }
  }
  std::vector<ibv_sge> sges;
  sges.reserve(work.pieces.size());
  for (const Piece& piece : work.pieces) {
    sges.push_back({process_.arena().address(piece.range.offset), piece.range.size, piece.lkey});
  }
  ibv_recv_wr wr{};
  wr.wr_id = work.id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  if (const int status = ibv_post_recv(qp_, &wr, &bad); status != 0) {
    fail(fmt::format("ibv_post_recv: {}, with {} posted", std::strerror(status), receives_.size()));
  }
  ++world_.counters().receives;
  world_.trace().mix_all(work.id, work.length);
  say("receive {}: {} bytes{}", work.id, work.length, work.bad_key ? ", wrong key" : "");
  receives_.push_back(std::move(work));
}

// Completing.

void Side::complete_receive(const ibv_wc& completion) {
  say("receive {}: {}", completion.wr_id, status_name(completion.status));
  const ReceiveWork work = take_receive(completion.wr_id);
  if (completion.status != IBV_WC_SUCCESS) return fail_receive(work, completion.status);
  // Of XRC's each queue completes for itself.
  if (receive_failed_ && !terms_.extended) fail("a receive succeeds after one that failed");
  receive_message(work, completion);
}

/// The message that must come into the receive.
std::deque<Message>::iterator Side::next_message(const ReceiveWork& work) {
  return std::ranges::find(inbound_, work.queue, &Message::queue);
}

ReceiveWork Side::take_receive(std::uint64_t id) {
  if (terms_.extended) return take_numbered(id);
  if (terms_.shared) {
    ReceiveWork work = shared().take(id, *this);
    ++received_[&shared()];
    return work;
  }
  if (receives_.empty()) fail(fmt::format("receive {} completes and is not posted", id));
  ReceiveWork work = std::move(receives_.front());
  receives_.pop_front();
  if (work.id != id) fail(fmt::format("receive {} completes before receive {}", id, work.id));
  return work;
}

void Side::receive_message(const ReceiveWork& work, const ibv_wc& completion) {
  const auto next = next_message(work);
  if (next == inbound_.end()) {
    fail(fmt::format("receive {} gets a message that nobody sent", work.id));
  }
  const Message message = std::move(*next);
  inbound_.erase(next);
  std::erase_if(notifies_, [&](const Notify& notify) { return notify.number == message.number; });
  const bool write = message.kind == Kind::kWriteImm;
  const auto opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (completion.opcode != opcode || completion.byte_len != message.length) {
    fail(fmt::format("receive {}: opcode {}, {} bytes; must be message {} ({}, {} bytes)", work.id,
                     static_cast<int>(completion.opcode), completion.byte_len, message.number,
                     to_string(message.kind), message.length));
  }
  check_invalidated(message, completion);
  const bool immediate = has_immediate(message.kind);
  if (((completion.wc_flags & IBV_WC_WITH_IMM) != 0) != immediate ||
      (immediate && ntohl(completion.imm_data) != message.immediate)) {
    fail(fmt::format("receive {}: wrong immediate data", work.id));
  }
  if (work.bad_key && !write && message.length != 0) {
    fail(fmt::format("receive {} has a wrong key and succeeds", work.id));
  }
  if (!write) process_.arena().expect(work.buffer->range().offset, *message.data);
  settle_receive(work, nullptr);
  zone_->executed(message.number);
  if (const auto wrong = zone_->check(peer_->never_from_, spoil())) {
    fail(fmt::format("when message {} was received: {}", message.number, *wrong));
  }
}

Spoil Side::spoil() const {
  const bool corrupts = world_.plan().disturbance.corrupt_ppm != 0;
  return {.mtu = corrupts && !terms_.extended ? mtu_ : 0};
}

/// The buffer's bytes are what they must be, and nobody writes them any more.
void Side::settle_receive(const ReceiveWork& work, const Data& maybe) {
  Arena& arena = process_.arena();
  const Range& range = work.buffer->range();
  const ConstBytes got = arena.bytes(range);
  const ConstBytes expected = arena.shadow(range);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    if (maybe && i < maybe->size() && (got[i] == (*maybe)[i] || spoil().covers(i, maybe->size())))
      continue;
    fail(fmt::format("receive {}: byte {} of {} is {:#04x}, must be {:#04x}", work.id, i,
                     got.size(), std::to_integer<unsigned>(got[i]),
                     std::to_integer<unsigned>(expected[i])));
  }
  arena.adopt(range);
  arena.settle(range);
}

void Side::fail_receive(const ReceiveWork& work, ibv_wc_status status) {
  world_.trace().mix_all(work.id, status);
  const bool first = !receive_failed_;
  bool right = status == IBV_WC_WR_FLUSH_ERR &&
               (connection_.broken || doomed_ || peer_->doomed_ || bad_receive_ ||
                peer_->bad_receive_ || failed_ || connection_.silent || may_exhaust() || !first);
  if (first && status == IBV_WC_LOC_LEN_ERR) right = peer_->misdeed_ == Misdeed::kTooLong;
  if (first && status == IBV_WC_LOC_PROT_ERR) right = work.bad_key;
  if (first && status == IBV_WC_REM_INV_REQ_ERR) {
    right = peer_->misdeed_ == Misdeed::kRemoteInvalidation;
  }
  if (!right) fail(fmt::format("receive {} ends with {}", work.id, status_name(status)));
  if (status == IBV_WC_WR_FLUSH_ERR) {
    // The rest of the send queue was flushed before any receive.
    // An unsignalled one may have succeeded before, which tells nothing.
    for (const SendWork& send : sends_) {
      const bool tells = send.signaled || terms_.signal_all;
      const bool ordered = !terms_.extended && terms_.send_cq == terms_.receive_cq;
      if (tells && send.id < work.id && ordered) {
        fail(fmt::format("receive {} is flushed before send {}", work.id, send.id));
      }
    }
  }
  if (!first && terms_.extended) fail("two messages were coming in at once");
  // A message that was coming in may have left a part of itself in the first one.
  const auto next = next_message(work);
  const Data& coming = next == inbound_.end() ? peer_->doomed_data_ : next->data;
  settle_receive(work, first ? coming : nullptr);
  receive_failed_ = true;
  connection_.broken = true;
}

// From a shared queue.

/// To be asked for only when there is one.
SharedReceives& Side::shared() const { return process_.shared_receives(terms_.shared.value_or(0)); }

std::size_t Side::may_hold(const SharedReceives& queue) const {
  const std::uint64_t begun =
      world_.checker().messages_begun(process_.address(), target_number_, queue.number());
  const auto received = received_.find(&queue);
  return begun - (received == received_.end() ? 0 : std::min(begun, received->second));
}

void Side::refuse_own_receive() {
  for (ibv_qp* const qp : queue_pairs()) {
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp, &wr, &bad) != EINVAL || bad != &wr) {
      fail("a receive was taken beside the shared queue");
    }
  }
}

/// The queue pair was in ERR for a while: it has said that it takes no more, once.
void Side::check_last_receive() {
  if ((!terms_.shared && !terms_.extended) || qp_ == nullptr) return;
  const Time ready = world_.scheduler().paused_until(process_.index());
  if (world_.now() < ready + kEventTime) return;
  if (process_.events_of(target_number_, IBV_EVENT_QP_LAST_WQE_REACHED) != 1) {
    fail("not one event that the last receive was reached");
  }
  ++world_.counters().last_receives;
}

}  // namespace verbena::sim
