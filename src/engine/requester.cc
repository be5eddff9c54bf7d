// SPDX-License-Identifier: Apache-2.0
#include "engine/requester.h"

#include <algorithm>

#include "engine/message.h"
#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"
#include "engine/send_opcode.h"
#include "engine/transport.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kTurnPackets = 64;
/// Packets of a long message that are not in its middle.
constexpr std::uint32_t kEnds = 2;
/// Bytes that are copied without packets in one turn.
constexpr std::uint32_t kDirectBytes = 1 << 20;
/// A message that goes on asks for an acknowledgement after that time: what carries it is slow.
constexpr Duration kAsksAfter = std::chrono::microseconds(100);
constexpr std::uint32_t kAtomicSize = 8;
constexpr std::size_t kMaxOutstanding = 256;

}  // namespace

Requester::Requester(Core& core, QueuePair& qp) : core_(core), qp_(qp) {
  if (has_requester(qp.config().type)) outstanding_.reserve(kMaxOutstanding);
}

void Requester::reset() {
  recall();
  rewind();
  window_ = incoming_ = nullptr;
  oldest_ = cursor_ = assigned_ = qp_.config().send_queue->tail();
  qp_.config().send_queue->clear();
  next_psn_ = cursor_psn_ = unacked_psn_ = high_psn_ = resumed_psn_ = 0;
  recovering_ = false;
  silent_timeouts_ = 0;
  local_error_.reset();
  ack_deadline_ = kNever;
  rnr_until_ = kNever;
}

void Requester::start() {
  const QpAttributes& attributes = qp_.attributes();
  const bool by_channel = attributes.path.channel != 0;
  WindowTable& windows = by_channel ? core_.channel_windows : core_.windows;
  window_ = &windows.of(attributes.path.destination, attributes.destination_qp);
  incoming_ = by_channel ? &core_.incoming_by_channel : &core_.incoming;
  next_psn_ = cursor_psn_ = unacked_psn_ = high_psn_ = resumed_psn_ = attributes.sq_psn;
  pauses_ = rnr_pauses_ = 0;
  renew_retries();
}

void Requester::renew_retries() {
  retries_left_ = qp_.attributes().retry_count;
  rnr_retries_left_ = qp_.attributes().rnr_retry;
}

// --- Sending

Fill Requester::fill(TrainBatch& batch, Time now, Rests rests) {
  std::uint32_t left = packets_to_send(rests);
  holds_rest_ = false;
  if (waits_for_receive() && now < rnr_until_) return Fill::kIdle;
  rnr_until_ = kNever;
  SendQueue& queue = *qp_.config().send_queue;
  const std::size_t turn_end = batch.size() + kTurnPackets;
  std::uint32_t direct_budget = kDirectBytes;
  while (cursor_ != queue.tail()) {
    if (local_error_) {
      // Completions come in order: the failure waits until everything before it is complete.
      if (oldest_ == cursor_) fail_oldest(*local_error_);
      return Fill::kIdle;
    }
    if (batch.full() || batch.size() >= turn_end) return Fill::kMore;
    SendWqe& wqe = queue.at(cursor_);
    if (!can_start(wqe)) return Fill::kIdle;
    const SendOpcode opcode = wqe.request.opcode;
    if (is_local(opcode)) {
      do_locally(wqe);
      continue;
    }
    if (cursor_ == assigned_ && awaits_response(opcode) && qp_.attributes().max_rd_atomic == 0) {
      static_cast<void>(local_error(Status::kLocalQpOperationError));  // it could never begin
      continue;
    }
    if (may_be_direct(wqe)) {
      const auto done = do_directly(wqe, direct_budget, now);
      if (done == Fill::kIdle) continue;
      if (done) return *done;
    } else if (waits_to_be_direct(wqe)) {
      return Fill::kIdle;
    }
    if (left == 0) {
      holds_rest_ = true;
      return Fill::kIdle;
    }
    direct_bytes_ = 0;  // by packets all of it goes
    if (cursor_ == assigned_) assign_psns(wqe);
    const std::uint32_t before = cursor_psn_;
    const Fill result = opcode == SendOpcode::kRead          ? send_read(batch, wqe, now)
                        : is_atomic(opcode)                  ? send_atomic(batch, wqe, now)
                        : opcode == SendOpcode::kAtomicWrite ? send_atomic_write(batch, wqe, now)
                        : opcode == SendOpcode::kFlush       ? send_flush(batch, wqe, now)
                                                             : send_message(batch, wqe, now, left);
    const auto sent = static_cast<std::uint32_t>(psn_distance(cursor_psn_, before));
    if (left != kAll) left -= std::min(left, sent);
    if (result == Fill::kIdle && local_error_) continue;
    if (result != Fill::kMore) return result;
  }
  return Fill::kIdle;
}

/// What stops it here fill() finds again.
bool Requester::send_alone(TrainBatch& batch) {
  SendQueue& queue = *qp_.config().send_queue;
  if (cursor_ + 1 != queue.tail() || waits_for_receive() || local_error_) return false;
  SendWqe& wqe = queue.at(cursor_);
  const SendOpcode opcode = wqe.request.opcode;
  const bool message = opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImm ||
                       opcode == SendOpcode::kWrite || opcode == SendOpcode::kWriteWithImm;
  if (!message || wqe.length > qp_.mtu() || !can_start(wqe) || may_be_direct(wqe)) return false;
  if (qp_.pace().limits()) return false;
  direct_bytes_ = 0;
  if (cursor_ == assigned_) assign_psns(wqe);
  if (!window_takes(wqe.packet_cost)) return false;
  if (!send_part(batch, core_.memory, qp_, wqe, {.count = 1, .psn = cursor_psn_})) return false;
  charge(wqe.packet_cost);
  advance_cursor(wqe, 1);
  return true;
}

bool Requester::short_send(const ShortRequest& request, wire::ShortSend& message) const {
  const Sge& piece = request.piece;
  const bool idle = cursor_ == qp_.config().send_queue->tail() && cursor_ == assigned_ &&
                    !waits_for_receive() && !local_error_ && !qp_.pace().limits();
  const bool fits = piece.length <= qp_.mtu() && window_takes(kPacketOverhead + piece.length);
  if (!idle || !fits) return false;
  const auto bytes =
      core_.memory.lookup(piece.lkey, piece.address, piece.length, kLocalRead, qp_.config().pd);
  if (!bytes) return false;
  message.path = &qp_.path();
  message.destination_qp = qp_.attributes().destination_qp;
  message.psn = cursor_psn_;
  message.piggyback = 0;
  message.solicited = request.solicited;
  message.payload = *bytes;
  return true;
}

void Requester::sent_short(Time now) {
  SendWqe& wqe = qp_.config().send_queue->at(cursor_);
  advance_row(1);
  charge(wqe.packet_cost);
  qp_.count(&Counters::bytes_sent, wqe.length);
  qp_.count(&Counters::packets_sent);
  await_acknowledgement(now);
}

bool Requester::rests() const {
  return cursor_ == qp_.config().send_queue->tail() && !local_error_;
}

bool Requester::can_start(const SendWqe& wqe) const {
  const bool begun = cursor_ != assigned_ || direct_bytes_ != 0;
  if (!begun && qp_.state() == QpState::kSqd && !mutant(Mutant::kDrainIgnored)) return false;
  if (wqe.request.fence && !outstanding_.empty() && !mutant(Mutant::kFenceIgnored)) {
    // A READ that is asked for in parts does not wait for its own earlier parts.
    if (!begun || cursor_psn_ == wqe.first_psn) return false;
  }
  if (awaits_response(wqe.request.opcode) && !mutant(Mutant::kMaxRdAtomicIgnored)) {
    return outstanding_.size() < std::max<std::size_t>(qp_.attributes().max_rd_atomic, 1);
  }
  return outstanding_.size() < kMaxOutstanding;
}

void Requester::assign_psns(SendWqe& wqe) {
  wqe.first_psn = next_psn_;
  const bool one = is_atomic(wqe.request.opcode) || wqe.length <= qp_.mtu();
  const Split split = one ? Split{.payload = qp_.mtu()} : split_of(wqe, splitting());
  wqe.payload = split.payload;
  wqe.psn_count = split.count;
  wqe.spread = split.spread;
  next_psn_ = psn_add(next_psn_, wqe.psn_count);
  ++assigned_;
  wqe.packet_cost = kPacketOverhead + payload_on_the_way(wqe);
  if (wqe.request.opcode != SendOpcode::kRead) return;
  // The answer to one READ request comes as fast as the peer can send, into a socket buffer of ours
  // that others use too: a long READ is asked for in parts, each a READ request of its own on the
  // wire. They stay the same in retries, since for the responder each is a message with its PSNs.
  const std::uint32_t packet = qp_.mtu() + kPacketOverhead;
  wqe.read_part = std::max(incoming_->limit() / 2 / packet, 1u);
}

/// Bytes that each packet of a request, or of its answer, takes with it. Where those of the middle
/// ones stay with their sender, it is those of the others, spread over all.
std::uint32_t Requester::payload_on_the_way(const SendWqe& wqe) const {
  if (wqe.psn_count == 1) return wqe.length;
  const bool may_stay = wqe.psn_count > kEnds && wqe.request.opcode != SendOpcode::kRead &&
                        qp_.path().channel != 0 && core_.config.lends;
  return may_stay && core_.config.lends(qp_.path()) ? kEnds * wqe.payload / wqe.psn_count
                                                    : wqe.payload;
}

Splitting Requester::splitting() const {
  const wire::Path& path = qp_.path();
  const bool xrc = qp_.config().type == QpType::kXrcSend;
  return {.mtu = qp_.mtu(),
          .header = static_cast<std::uint32_t>(wire::Bth::kSize + (xrc ? wire::XrcEth::kSize : 0)),
          .segments = path.channel == 0 && core_.config.segments && core_.config.segments(path)};
}

/// Binds or invalidates at the cursor, once: in a retry it is done already.
void Requester::do_locally(SendWqe& wqe) {
  if (cursor_ == assigned_) {
    const Status status = execute_locally(core_.memory, qp_, wqe.request);
    if (status != Status::kSuccess) {
      static_cast<void>(local_error(status));
      return;
    }
    wqe.first_psn = next_psn_;
    wqe.psn_count = 0;
    ++assigned_;
  }
  ++cursor_;
  retire_local();
}

/// What was done here is complete when all before it is.
void Requester::retire_local() {
  SendQueue& queue = *qp_.config().send_queue;
  while (qp_.state() != QpState::kErr && oldest_ != assigned_ &&
         is_local(queue.at(oldest_).request.opcode)) {
    if (cursor_ == oldest_) ++cursor_;
    complete_oldest(Status::kSuccess);
  }
}

/// All; or those that fill whole sends, where the program has posted requests while those before
/// them were under way: it goes on so, probably.
std::uint32_t Requester::packets_to_send(Rests rests) {
  const bool may_hold = rests == Rests::kHold && (oldest_ != cursor_ || holds_rest_) &&
                        !recovering_ && qp_.path().channel == 0 && qp_.state() == QpState::kRts;
  if (!may_hold) return kAll;
  const bool begun = cursor_ != assigned_;
  SendQueue& queue = *qp_.config().send_queue;
  const auto sent =
      begun ? static_cast<std::uint32_t>(psn_distance(cursor_psn_, queue.at(cursor_).first_psn))
            : 0;
  return whole_sends(queue, cursor_, sent, splitting()).value_or(kAll);
}

Fill Requester::send_message(TrainBatch& batch, SendWqe& wqe, Time now, std::uint32_t most) {
  const auto index = static_cast<std::uint32_t>(psn_distance(cursor_psn_, wqe.first_psn));
  const std::uint32_t row = row_at_cursor(wqe);
  const std::uint32_t wanted =
      std::min(row > 1 ? row : std::min(wqe.psn_count - index, turn_packets(qp_.mtu())), most);
  // Without anything of its own under way a queue pair has no timer that would bring it back: it
  // may always send one.
  const std::uint32_t least = outgoing_charge_ == 0 ? 1 : 0;
  const std::uint32_t room = std::max(window_->admits(wqe.packet_cost, wanted), least);
  if (room == 0) return Fill::kBlocked;
  const std::uint32_t payload = wqe.psn_count == 1 ? wqe.length : wqe.payload;
  const std::uint32_t count = qp_.pace().admits_requests(payload, room, now);
  if (count == 0) return Fill::kIdle;

  const auto sent =
      row > 1 ? send_row(batch, core_.memory, qp_, *qp_.config().send_queue,
                         {.index = cursor_, .count = count, .psn = cursor_psn_})
              : send_part(
                    batch, core_.memory, qp_, wqe,
                    {.index = index,
                     .count = count,
                     .psn = cursor_psn_,
                     .asks = count < wanted || (wqe.psn_count > 1 && asks_after(count, wqe, now))});
  if (!sent) return local_error(Status::kLocalProtectionError);
  qp_.pace().sent_requests(payload, *sent, now);
  charge(*sent * wqe.packet_cost);
  if (row > 1) {
    advance_row(*sent);
  } else {
    advance_cursor(wqe, *sent);
  }
  await_acknowledgement(now);
  return Fill::kMore;
}

/// Whether one packet more may leave: always, where nothing is under way that would bring a timer.
bool Requester::window_takes(std::uint32_t cost) const {
  return outgoing_charge_ == 0 || window_->admits(cost, 1) != 0;
}

void Requester::charge(std::uint32_t bytes) {
  window_->charge(bytes);
  outgoing_charge_ += bytes;
}

/// Whether so many packets more ask for an acknowledgement, although their message goes on at once:
/// when the window is full with them, a part of it went without, or some time.
bool Requester::asks_after(std::uint32_t packets, const SendWqe& wqe, Time now) {
  const std::uint32_t cost = wqe.packet_cost;
  unasked_ += packets * cost;
  const bool asks = window_->left() < (packets + 1) * cost || unasked_ >= window_->limit() / 4 ||
                    now - asked_at_ > kAsksAfter;
  if (!asks) return false;
  unasked_ = 0;
  asked_at_ = now;
  return true;
}

/// How many requests from the cursor on leave as one row. In SQD those that have begun stop
/// anywhere.
std::uint32_t Requester::row_at_cursor(const SendWqe& wqe) {
  if (wqe.psn_count != 1 || qp_.state() != QpState::kRts) return 1;
  return row_of_requests(*qp_.config().send_queue, cursor_, qp_.mtu());
}

/// Over requests of one packet each, of which the first ones may have their PSNs already.
void Requester::advance_row(std::uint32_t count) {
  const std::uint32_t end = cursor_ + count;
  for (; static_cast<std::int32_t>(end - assigned_) > 0; ++assigned_) {
    SendWqe& wqe = qp_.config().send_queue->at(assigned_);
    wqe.first_psn = next_psn_;
    wqe.psn_count = 1;
    wqe.payload = wqe.length;
    wqe.spread = false;
    wqe.packet_cost = kPacketOverhead + wqe.length;
    next_psn_ = psn_add(next_psn_, 1);
  }
  note_sent(count);
  cursor_ = end;
}

/// What READ requests, atomics and FLUSHes have in common.
wire::Train& Requester::begin_request(TrainBatch& batch, const SendWqe& wqe,
                                      wire::Opcode rc_opcode) const {
  wire::Train& train = batch.next();
  train.path = &qp_.path();
  train.head.bth.opcode = opcode_of(qp_.config().type, rc_opcode);
  train.head.bth.destination_qp = qp_.attributes().destination_qp;
  train.head.bth.psn = cursor_psn_;
  train.head.xrceth = {.srq_number = wqe.request.remote_srq};
  train.ack_request_last = true;
  train.solicited_last = wqe.request.solicited;
  return train;
}

Fill Requester::send_read(TrainBatch& batch, SendWqe& wqe, Time now) {
  const std::uint32_t mtu = qp_.mtu();
  const auto index = static_cast<std::uint32_t>(psn_distance(cursor_psn_, wqe.first_psn));
  const auto usable = check_pieces(core_.memory, wqe.request.pieces, kLocalWrite, qp_.read_pd());
  if (!usable) return local_error(Status::kLocalProtectionError);
  // A part that was begun is asked for from where its responses ended, to its end, even if it
  // passes a window that has shrunk since.
  const std::uint32_t count =
      std::min(wqe.psn_count - index, wqe.read_part - index % wqe.read_part);
  const bool admitted = incoming_charge_ == 0 || incoming_->admits(wqe.packet_cost, count) != 0;
  if (!admitted) return Fill::kBlocked;
  if (index % wqe.read_part != 0) resumed_psn_ = cursor_psn_;

  const std::uint32_t offset = index * mtu;
  wire::Train& train = begin_request(batch, wqe, wire::Opcode::kRcReadRequest);
  train.head.reth = {.address = wqe.request.remote_address + offset,
                     .rkey = wqe.request.rkey,
                     .dma_length = std::min(wqe.length - offset, count * mtu)};
  const std::uint32_t charge = count * wqe.packet_cost;
  incoming_->charge(charge);
  incoming_charge_ += charge;
  outstanding_.push_back({cursor_psn_, count});
  advance_cursor(wqe, count);
  await_acknowledgement(now);
  return Fill::kMore;
}

Fill Requester::send_atomic(TrainBatch& batch, SendWqe& wqe, Time now) {
  const SendRequest& request = wqe.request;
  if (wqe.length != kAtomicSize) return local_error(Status::kLocalLengthError);
  if (!check_pieces(core_.memory, request.pieces, kLocalWrite, qp_.config().pd)) {
    return local_error(Status::kLocalProtectionError);
  }
  const bool swap = request.opcode == SendOpcode::kCompareSwap;
  wire::Train& train =
      begin_request(batch, wqe, swap ? wire::Opcode::kRcCompareSwap : wire::Opcode::kRcFetchAdd);
  train.head.atomic_eth = {.address = request.remote_address,
                           .rkey = request.rkey,
                           .swap_or_add = swap ? request.swap : request.compare_or_add,
                           .compare = swap ? request.compare_or_add : 0};
  outstanding_.push_back({cursor_psn_, 1});
  advance_cursor(wqe, 1);
  await_acknowledgement(now);
  return Fill::kMore;
}

/// One packet with its data, as a WRITE, and a response of its own, as an atomic (Annex A19).
Fill Requester::send_atomic_write(TrainBatch& batch, SendWqe& wqe, Time now) {
  if (wqe.length != kAtomicSize) return local_error(Status::kLocalLengthError);
  const std::uint32_t psn = cursor_psn_;
  const Fill sent = send_message(batch, wqe, now);
  if (sent == Fill::kMore) outstanding_.push_back({psn, 1});
  return sent;
}

/// A request without data, and a response of its own (Annex A19).
Fill Requester::send_flush(TrainBatch& batch, SendWqe& wqe, Time now) {
  if (wqe.length != 0) return local_error(Status::kLocalLengthError);
  const SendRequest& request = wqe.request;
  wire::Train& train = begin_request(batch, wqe, wire::Opcode::kRcFlush);
  train.head.feth = {.selectivity = request.flush.selectivity,
                     .placement = request.flush.placement};
  train.head.reth = {
      .address = request.remote_address, .rkey = request.rkey, .dma_length = request.flush.length};
  outstanding_.push_back({cursor_psn_, 1});
  advance_cursor(wqe, 1);
  await_acknowledgement(now);
  return Fill::kMore;
}

void Requester::advance_cursor(const SendWqe& wqe, std::uint32_t packets) {
  note_sent(packets);
  if (cursor_psn_ == psn_add(wqe.first_psn, wqe.psn_count)) ++cursor_;
}

/// Packets, or those of an answer that was asked for, from the cursor's PSN on.
void Requester::note_sent(std::uint32_t packets) {
  const std::int32_t repeated = psn_distance(high_psn_, cursor_psn_);
  if (repeated > 0)
    qp_.count(&Counters::retransmitted, std::min(static_cast<std::uint32_t>(repeated), packets));
  cursor_psn_ = psn_add(cursor_psn_, packets);
  if (psn_distance(cursor_psn_, high_psn_) > 0) high_psn_ = cursor_psn_;
}

Fill Requester::local_error(Status status) {
  local_error_ = status;
  return Fill::kIdle;
}

}  // namespace verbena::engine
