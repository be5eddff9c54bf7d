// SPDX-License-Identifier: Apache-2.0
#include "engine/requester.h"

#include <algorithm>

#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kTurnBytes = 64 << 10;  ///< of one queue pair before the next one's turn
constexpr std::uint32_t kTurnPackets = 64;
constexpr std::uint32_t kAtomicSize = 8;
constexpr std::uint8_t kRnrForever = 7;
constexpr std::size_t kMaxOutstanding = 256;

bool is_atomic(SendOpcode opcode) {
  return opcode == SendOpcode::kCompareSwap || opcode == SendOpcode::kFetchAdd;
}
bool awaits_response(SendOpcode opcode) { return opcode == SendOpcode::kRead || is_atomic(opcode); }

/// The opcodes of a SEND or WRITE, by where a packet stands in its message.
struct MessageOpcodes {
  wire::Opcode first, middle, last, only;
};

MessageOpcodes opcodes_of(SendOpcode opcode) {
  using enum wire::Opcode;
  switch (opcode) {
    case SendOpcode::kWrite: return {kRcWriteFirst, kRcWriteMiddle, kRcWriteLast, kRcWriteOnly};
    case SendOpcode::kWriteWithImm:
      return {kRcWriteFirst, kRcWriteMiddle, kRcWriteLastImm, kRcWriteOnlyImm};
    case SendOpcode::kSendWithImm:
      return {kRcSendFirst, kRcSendMiddle, kRcSendLastImm, kRcSendOnlyImm};
    case SendOpcode::kSendWithInvalidate:
      return {kRcSendFirst, kRcSendMiddle, kRcSendLastInv, kRcSendOnlyInv};
    default: return {kRcSendFirst, kRcSendMiddle, kRcSendLast, kRcSendOnly};
  }
}

CompletionOpcode completion_of(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite:
    case SendOpcode::kWriteWithImm: return CompletionOpcode::kWrite;
    case SendOpcode::kRead: return CompletionOpcode::kRead;
    case SendOpcode::kCompareSwap: return CompletionOpcode::kCompareSwap;
    case SendOpcode::kFetchAdd: return CompletionOpcode::kFetchAdd;
    case SendOpcode::kLocalInvalidate: return CompletionOpcode::kLocalInvalidate;
    default: return CompletionOpcode::kSend;
  }
}

Status status_of(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::kInvalidRequest: return Status::kRemoteInvalidRequest;
    case wire::NakCode::kRemoteAccessError: return Status::kRemoteAccessError;
    default: return Status::kRemoteOperationError;
  }
}

/// A response with a reserved syndrome is dropped as malformed: nobody knows what it says, so it
/// must not acknowledge what came before it either. NAK codes from 4 on are reserved on a reliable
/// connection (engine.md, "Responder"); every credit count and every RNR timer code has a meaning,
/// and the top bit is ignored. Data come with a positive acknowledgement only.
bool known_syndrome(const wire::Packet& packet) {
  if (!packet.info().has_aeth) return true;
  const bool data = packet.info().operation != wire::Operation::kAcknowledge;
  switch (packet.aeth.kind) {
    case wire::Aeth::Kind::kAck: return true;
    case wire::Aeth::Kind::kRnrNak: return !data;
    case wire::Aeth::Kind::kNak:
      return !data &&
             packet.aeth.value <= static_cast<std::uint8_t>(wire::NakCode::kRemoteOperationalError);
    case wire::Aeth::Kind::kReserved: return false;
  }
  return false;
}

}  // namespace

Requester::Requester(Core& core, QueuePair& qp) : core_(core), qp_(qp) {
  if (qp.config().type == QpType::kRc) outstanding_.reserve(kMaxOutstanding);
}

void Requester::reset() {
  rewind();
  window_ = nullptr;
  oldest_ = cursor_ = assigned_ = qp_.config().send_queue->tail();
  qp_.config().send_queue->clear();
  next_psn_ = cursor_psn_ = unacked_psn_ = high_psn_ = resumed_psn_ = 0;
  recovering_ = false;
  local_error_.reset();
  ack_deadline_.reset();
  rnr_until_.reset();
}

void Requester::start() {
  const QpAttributes& attributes = qp_.attributes();
  window_ = &core_.windows.of(attributes.path.destination, attributes.destination_qp);
  next_psn_ = cursor_psn_ = unacked_psn_ = high_psn_ = resumed_psn_ = attributes.sq_psn;
  retries_left_ = attributes.retry_count;
  rnr_retries_left_ = attributes.rnr_retry;
}

// --- Sending

Fill Requester::fill(TrainBatch& batch, Time now) {
  if (rnr_until_ && now < *rnr_until_) return Fill::kIdle;
  rnr_until_.reset();
  SendQueue& queue = *qp_.config().send_queue;
  const std::size_t turn_end = batch.size() + kTurnPackets;
  while (cursor_ != queue.tail()) {
    if (local_error_) {
      // Completions come in order: the failure waits until everything before it is complete.
      if (oldest_ == cursor_) fail_oldest(*local_error_);
      return Fill::kIdle;
    }
    if (batch.full() || batch.size() >= turn_end) return Fill::kMore;
    SendWqe& wqe = queue.at(cursor_);
    if (!can_start(wqe)) return Fill::kIdle;
    if (cursor_ == assigned_) assign_psns(wqe);
    const SendOpcode opcode = wqe.request.opcode;
    const Fill result = opcode == SendOpcode::kRead ? send_read(batch, wqe, now)
                        : is_atomic(opcode)         ? send_atomic(batch, wqe, now)
                                                    : send_message(batch, wqe, now);
    if (result == Fill::kIdle && local_error_) continue;
    if (result != Fill::kMore) return result;
  }
  return Fill::kIdle;
}

bool Requester::can_start(const SendWqe& wqe) const {
  const bool begun = cursor_ != assigned_;
  if (!begun && qp_.state() == QpState::kSqd) return false;
  if (wqe.request.fence && !outstanding_.empty() && !mutant(Mutant::kFenceIgnored)) {
    // A READ that is asked for in parts does not wait for its own earlier parts.
    if (!begun || cursor_psn_ == wqe.first_psn) return false;
  }
  if (awaits_response(wqe.request.opcode) && !mutant(Mutant::kMaxRdAtomicIgnored)) {
    return outstanding_.size() < qp_.attributes().max_rd_atomic;
  }
  return outstanding_.size() < kMaxOutstanding;
}

void Requester::assign_psns(SendWqe& wqe) {
  wqe.first_psn = next_psn_;
  wqe.psn_count =
      is_atomic(wqe.request.opcode) ? 1 : packet_count(wqe.length, qp_.attributes().path_mtu);
  // The answer to one READ request comes as fast as the peer can send, into a socket buffer of ours
  // that others use too: a long READ is asked for in parts, each a READ request of its own on the
  // wire. They stay the same in retries, since for the responder each is a message with its PSNs.
  const std::uint32_t packet = qp_.attributes().path_mtu + kPacketOverhead;
  wqe.read_part = std::max(core_.incoming.limit() / 2 / packet, 1u);
  next_psn_ = psn_add(next_psn_, wqe.psn_count);
  ++assigned_;
}

std::uint32_t Requester::packet_cost(const SendWqe& wqe) const {
  return kPacketOverhead + (wqe.psn_count == 1 ? wqe.length : qp_.attributes().path_mtu);
}

Fill Requester::send_message(TrainBatch& batch, SendWqe& wqe, Time now) {
  const std::uint32_t mtu = qp_.attributes().path_mtu;
  const auto index = static_cast<std::uint32_t>(psn_distance(cursor_psn_, wqe.first_psn));
  const std::uint32_t wanted = std::min(wqe.psn_count - index, std::max(kTurnBytes / mtu, 1u));
  // Without anything of its own under way a queue pair has no timer that would bring it back: it
  // may always send one.
  const std::uint32_t least = outgoing_charge_ == 0 ? 1 : 0;
  const std::uint32_t count = std::max(window_->admits(packet_cost(wqe), wanted), least);
  if (count == 0) return Fill::kBlocked;

  const std::uint32_t offset = index * mtu;
  const std::uint32_t size = std::min(wqe.length - offset, count * mtu);
  std::span<const ConstBytes> pieces;
  if (wqe.request.inline_data) {
    pieces = batch.gather(wqe.inline_bytes.subspan(offset, size));
  } else {
    const auto gathered =
        batch.gather(core_.memory, wqe.request.pieces, offset, size, qp_.config().pd);
    if (!gathered) return local_error(Status::kLocalProtectionError);
    pieces = *gathered;
  }

  wire::Train& train = batch.next();
  train.path = &qp_.attributes().path;
  fill_message_headers(train, wqe, index, count);
  train.count = count;
  train.segment_size = mtu;
  train.payload_size = size;
  train.gather = pieces;
  const std::uint32_t charge = count * packet_cost(wqe);
  window_->charge(charge);
  outgoing_charge_ += charge;
  core_.counters.bytes_sent += size;
  advance_cursor(wqe, count, now);
  return Fill::kMore;
}

void Requester::fill_message_headers(wire::Train& train, const SendWqe& wqe, std::uint32_t index,
                                     std::uint32_t count) const {
  const SendRequest& request = wqe.request;
  const MessageOpcodes opcodes = opcodes_of(request.opcode);
  const bool at_start = index == 0;
  const bool at_end = index + count == wqe.psn_count;
  wire::Bth& bth = train.head.bth;
  bth.opcode = at_start ? (wqe.psn_count == 1 ? opcodes.only : opcodes.first)
                        : (at_end && count == 1 ? opcodes.last : opcodes.middle);
  bth.destination_qp = qp_.attributes().destination_qp;
  bth.psn = cursor_psn_;
  train.middle_opcode = opcodes.middle;
  train.last_opcode = at_end ? opcodes.last : opcodes.middle;
  train.ack_request_last = true;
  train.solicited_last = at_end && request.solicited;
  train.head.reth = {
      .address = request.remote_address, .rkey = request.rkey, .dma_length = wqe.length};
  train.head.immediate.value = request.immediate;
  train.head.ieth.rkey = request.invalidate_rkey;
}

Fill Requester::send_read(TrainBatch& batch, SendWqe& wqe, Time now) {
  const std::uint32_t mtu = qp_.attributes().path_mtu;
  const auto index = static_cast<std::uint32_t>(psn_distance(cursor_psn_, wqe.first_psn));
  const auto usable = check_pieces(core_.memory, wqe.request.pieces, kLocalWrite, qp_.config().pd);
  if (!usable) return local_error(Status::kLocalProtectionError);
  // A part that was begun is asked for from where its responses ended, to its end, even if it
  // passes a window that has shrunk since.
  const std::uint32_t count =
      std::min(wqe.psn_count - index, wqe.read_part - index % wqe.read_part);
  const bool admitted =
      incoming_charge_ == 0 || core_.incoming.admits(packet_cost(wqe), count) != 0;
  if (!admitted) return Fill::kBlocked;
  if (index % wqe.read_part != 0) resumed_psn_ = cursor_psn_;

  const std::uint32_t offset = index * mtu;
  wire::Train& train = batch.next();
  train.path = &qp_.attributes().path;
  train.head.bth.opcode = wire::Opcode::kRcReadRequest;
  train.head.bth.destination_qp = qp_.attributes().destination_qp;
  train.head.bth.psn = cursor_psn_;
  train.head.reth = {.address = wqe.request.remote_address + offset,
                     .rkey = wqe.request.rkey,
                     .dma_length = std::min(wqe.length - offset, count * mtu)};
  train.ack_request_last = true;
  train.solicited_last = wqe.request.solicited;
  const std::uint32_t charge = count * packet_cost(wqe);
  core_.incoming.charge(charge);
  incoming_charge_ += charge;
  outstanding_.push_back({cursor_psn_, count});
  advance_cursor(wqe, count, now);
  return Fill::kMore;
}

Fill Requester::send_atomic(TrainBatch& batch, SendWqe& wqe, Time now) {
  const SendRequest& request = wqe.request;
  if (wqe.length != kAtomicSize) return local_error(Status::kLocalLengthError);
  if (!check_pieces(core_.memory, request.pieces, kLocalWrite, qp_.config().pd)) {
    return local_error(Status::kLocalProtectionError);
  }
  const bool swap = request.opcode == SendOpcode::kCompareSwap;
  wire::Train& train = batch.next();
  train.path = &qp_.attributes().path;
  train.head.bth.opcode = swap ? wire::Opcode::kRcCompareSwap : wire::Opcode::kRcFetchAdd;
  train.head.bth.destination_qp = qp_.attributes().destination_qp;
  train.head.bth.psn = cursor_psn_;
  train.head.atomic_eth = {.address = request.remote_address,
                           .rkey = request.rkey,
                           .swap_or_add = swap ? request.swap : request.compare_or_add,
                           .compare = swap ? request.compare_or_add : 0};
  train.ack_request_last = true;
  train.solicited_last = request.solicited;
  outstanding_.push_back({cursor_psn_, 1});
  advance_cursor(wqe, 1, now);
  return Fill::kMore;
}

void Requester::advance_cursor(const SendWqe& wqe, std::uint32_t packets, Time now) {
  const std::int32_t repeated = psn_distance(high_psn_, cursor_psn_);
  if (repeated > 0)
    core_.counters.retransmitted += std::min(static_cast<std::uint32_t>(repeated), packets);
  cursor_psn_ = psn_add(cursor_psn_, packets);
  if (psn_distance(cursor_psn_, high_psn_) > 0) high_psn_ = cursor_psn_;
  if (cursor_psn_ == psn_add(wqe.first_psn, wqe.psn_count)) ++cursor_;
  if (!ack_deadline_) arm(now);
}

Fill Requester::local_error(Status status) {
  local_error_ = status;
  return Fill::kIdle;
}

// --- Responses

void Requester::handle_response(const wire::Packet& packet, Time now) {
  const std::uint32_t psn = packet.bth.psn;
  if (psn_distance(psn, unacked_psn_) < 0 ||
      (psn_distance(psn, high_psn_) >= 0 && !mutant(Mutant::kGhostAckAccepted))) {
    ++core_.counters.ghost_responses;
    return;
  }
  if (mutant(Mutant::kGhostAckAccepted) && psn_distance(psn, high_psn_) >= 0) {
    static_cast<void>(acknowledge_before(high_psn_, now));
    return;
  }
  using wire::Operation;
  if (!known_syndrome(packet)) {
    ++core_.counters.malformed;
    return;
  }
  switch (packet.info().operation) {
    case Operation::kReadResponse: return handle_read_response(packet, now);
    case Operation::kAtomicAcknowledge: return handle_atomic_response(packet, now);
    case Operation::kAcknowledge: break;
    default: return;
  }
  using Kind = wire::Aeth::Kind;
  switch (packet.aeth.kind) {
    case Kind::kAck: return handle_acknowledge(packet, now);
    case Kind::kNak: return handle_nak(packet, now);
    case Kind::kRnrNak: return handle_rnr_nak(packet, now);
    case Kind::kReserved: return;
  }
}

void Requester::handle_acknowledge(const wire::Packet& packet, Time now) {
  // A response acknowledges everything before it, except READs and atomics whose own responses are
  // missing: those were lost (engine.md, "Requester").
  if (!acknowledge_before(psn_add(packet.bth.psn, 1), now)) recover();
}

void Requester::handle_nak(const wire::Packet& packet, Time now) {
  ++core_.counters.naks_received;
  if (!acknowledge_before(packet.bth.psn, now)) return recover();
  const auto code = static_cast<wire::NakCode>(packet.aeth.value);
  if (code == wire::NakCode::kSequenceError) return recover();
  fail_oldest(status_of(code));
}

void Requester::handle_rnr_nak(const wire::Packet& packet, Time now) {
  ++core_.counters.rnr_naks_received;
  if (!acknowledge_before(packet.bth.psn, now)) return recover();
  if (rnr_until_) return;  // a repetition of the one that we wait for already
  if (mutant(Mutant::kRnrConsumesRetry)) {
    if (retries_left_ == 0) return fail_oldest(Status::kRetryExceeded);
    --retries_left_;
  }
  if (qp_.attributes().rnr_retry != kRnrForever && !mutant(Mutant::kRnrForever)) {
    if (rnr_retries_left_ == 0) return fail_oldest(Status::kRnrRetryExceeded);
    --rnr_retries_left_;
  }
  rewind();
  rnr_until_ = now + rnr_delay(packet.aeth.value);
}

void Requester::handle_read_response(const wire::Packet& packet, Time now) {
  const std::uint32_t psn = packet.bth.psn;
  const bool in_order = acknowledge_before(psn, now);
  if (oldest_ == assigned_) return;
  SendWqe& wqe = qp_.config().send_queue->at(oldest_);
  const bool read = wqe.request.opcode == SendOpcode::kRead;
  const bool misplaced = read && mutant(Mutant::kReadResponsePlacedTwice);
  if ((!in_order || psn != unacked_psn_) && !misplaced) return recover();
  if (!read) return fail_oldest(Status::kBadResponseError);
  const std::uint32_t mtu = qp_.attributes().path_mtu;
  const auto index = static_cast<std::uint32_t>(psn_distance(unacked_psn_, wqe.first_psn));
  if (!right_place(packet.info().place, wqe, index) && !misplaced) {
    return fail_oldest(Status::kBadResponseError);
  }
  const bool last = index + 1 == wqe.psn_count;
  const std::uint32_t offset = index * mtu;
  const std::uint32_t expected = last ? wqe.length - offset : mtu;
  // Of the right place but too short or too long: the status that Linux's drivers report (qib).
  if (packet.payload.size() != expected) return fail_oldest(Status::kLocalLengthError);
  if (!scatter(core_.memory, wqe.request.pieces, offset, packet.payload, qp_.config().pd)) {
    return fail_oldest(Status::kLocalProtectionError);
  }
  core_.counters.bytes_received += packet.payload.size();
  pass(wqe, psn_add(unacked_psn_, 1), now);
}

/// Whether a READ response with this place in its message may carry packet `index` of the READ.
///
/// The answers to each part begin with FIRST and end with LAST, or are one ONLY. A retry that asks
/// for the tail of a part is answered with FIRST at its start by some responders (ours) and with
/// MIDDLE by others (rxe, for a repetition that begins behind the original request's first PSN);
/// what was sent before the retry may still come, too. Anything else is an opcode that nobody asked
/// for: IBV_WC_BAD_RESP_ERR.
bool Requester::right_place(wire::Place place, const SendWqe& wqe, std::uint32_t index) const {
  const std::uint32_t in_part = index % wqe.read_part;
  const bool begins = in_part == 0;
  const bool ends = in_part + 1 == wqe.read_part || index + 1 == wqe.psn_count;
  const bool may_begin = begins || resumed_psn_ == unacked_psn_;
  switch (place) {
    case wire::Place::kFirst: return may_begin && !ends;
    case wire::Place::kMiddle: return !begins && !ends;
    case wire::Place::kLast: return !begins && ends;
    case wire::Place::kOnly: return may_begin && ends;
  }
  return false;
}

void Requester::handle_atomic_response(const wire::Packet& packet, Time now) {
  const std::uint32_t psn = packet.bth.psn;
  if (!acknowledge_before(psn, now)) return recover();
  if (psn != unacked_psn_) return recover();
  if (oldest_ == assigned_) return;
  SendWqe& wqe = qp_.config().send_queue->at(oldest_);
  if (!is_atomic(wqe.request.opcode)) return fail_oldest(Status::kBadResponseError);
  const std::uint64_t original = packet.atomic_ack_eth.original;
  const auto bytes = std::as_bytes(std::span(&original, 1));
  if (!scatter(core_.memory, wqe.request.pieces, 0, bytes, qp_.config().pd)) {
    return fail_oldest(Status::kLocalProtectionError);
  }
  pass(wqe, psn_add(psn, 1), now);
}

/// Moves over every PSN before `end_psn`. False when a READ or an atomic stands in the way whose
/// response is missing.
bool Requester::acknowledge_before(std::uint32_t end_psn, Time now) {
  SendQueue& queue = *qp_.config().send_queue;
  while (qp_.state() != QpState::kErr && psn_distance(end_psn, unacked_psn_) > 0 &&
         oldest_ != assigned_) {
    SendWqe& wqe = queue.at(oldest_);
    if (awaits_response(wqe.request.opcode) && !mutant(Mutant::kReadAcknowledgedByLater))
      return false;
    const std::uint32_t wqe_end = psn_add(wqe.first_psn, wqe.psn_count);
    pass(wqe, psn_distance(end_psn, wqe_end) < 0 ? end_psn : wqe_end, now);
  }
  return true;
}

/// The oldest request is acknowledged up to `end_psn`, which lies within it or at its end.
void Requester::pass(SendWqe& wqe, std::uint32_t end_psn, Time now) {
  const auto packets = static_cast<std::uint32_t>(psn_distance(end_psn, unacked_psn_));
  const bool read = wqe.request.opcode == SendOpcode::kRead;
  std::uint32_t& charge = read ? incoming_charge_ : outgoing_charge_;
  const std::uint32_t released = std::min(charge, packets * packet_cost(wqe));
  Window& window = read ? core_.incoming : *window_;
  charge -= released;
  window.release(released);
  window.progressed(released);

  unacked_psn_ = end_psn;
  while (!outstanding_.empty() &&
         psn_distance(unacked_psn_,
                      psn_add(outstanding_.front().first_psn, outstanding_.front().count)) >= 0) {
    outstanding_.erase(outstanding_.begin());
  }
  const bool complete = end_psn == psn_add(wqe.first_psn, wqe.psn_count);
  // After a rewind the cursor can be behind what late answers have now acknowledged.
  if (psn_distance(unacked_psn_, cursor_psn_) > 0) {
    cursor_psn_ = unacked_psn_;
    cursor_ = oldest_ + (complete ? 1 : 0);
    local_error_.reset();
  }
  note_progress(now);
  if (complete) complete_oldest(Status::kSuccess);
}

void Requester::note_progress(Time now) {
  if (!mutant(Mutant::kRetryNeverReset)) retries_left_ = qp_.attributes().retry_count;
  rnr_retries_left_ = qp_.attributes().rnr_retry;
  recovering_ = false;
  ack_deadline_.reset();
  if (under_way() && !rnr_until_) arm(now);
}

// --- Retries and errors

/// Answers a sign of loss at unacked_psn_: once until there is progress, since many packets may
/// report the same loss; the ACK time-out takes care of what is lost again.
void Requester::recover() {
  if (recovering_ || rnr_until_) return;
  if (!mutant(Mutant::kRetryForever)) {
    if (retries_left_ == 0) return fail_oldest(Status::kRetryExceeded);
    --retries_left_;
  }
  recovering_ = true;
  note_loss();
  rewind();
}

/// Back to the oldest unacknowledged PSN. The ACK time-out starts again with the first packet that
/// goes out.
void Requester::rewind() {
  ack_deadline_.reset();
  cursor_ = oldest_;
  cursor_psn_ = unacked_psn_;
  outstanding_.clear();
  local_error_.reset();
  if (window_ != nullptr) window_->release(outgoing_charge_);
  core_.incoming.release(incoming_charge_);
  outgoing_charge_ = 0;
  incoming_charge_ = 0;
}

void Requester::handle_timeout(Time now) {
  if (rnr_until_ && now >= *rnr_until_) rnr_until_.reset();
  if (!ack_deadline_ || now < *ack_deadline_) return;
  ack_deadline_.reset();
  if (!under_way()) return;
  ++core_.counters.timeouts;
  if (!mutant(Mutant::kRetryForever)) {
    if (retries_left_ == 0) return fail_oldest(Status::kRetryExceeded);
    --retries_left_;
  }
  note_loss();
  rewind();
}

void Requester::note_loss() {
  const bool reading = oldest_ != assigned_ &&
                       qp_.config().send_queue->at(oldest_).request.opcode == SendOpcode::kRead;
  (reading ? core_.incoming : *window_).lost();
}

void Requester::arm(Time now) {
  // 4.096 µs · 2^timeout, 0 is none; never below what a scheduler may take (nic.md, "Progress").
  const std::uint8_t code = qp_.attributes().timeout;
  if (code == 0) return;
  const Duration asked =
      std::chrono::nanoseconds(std::int64_t{4096} << std::min<std::uint8_t>(code, 31));
  ack_deadline_ = now + std::max(asked, core_.config.min_ack_timeout);
}

std::optional<Time> Requester::deadline() const {
  if (rnr_until_ && ack_deadline_) return std::min(*rnr_until_, *ack_deadline_);
  return rnr_until_ ? rnr_until_ : ack_deadline_;
}

void Requester::fail_oldest(Status status) {
  if (oldest_ != qp_.config().send_queue->tail()) {
    complete_oldest(mutant(Mutant::kFirstErrorFlushed) ? Status::kFlushError : status);
  }
  qp_.enter_error(false);
}

/// Completions come in order. An unsignalled request gives its slot back with the next one that
/// completes.
void Requester::complete_oldest(Status status) {
  SendQueue& queue = *qp_.config().send_queue;
  const SendWqe& wqe = queue.at(oldest_);
  const bool signaled = wqe.request.signaled || qp_.config().signal_all ||
                        status != Status::kSuccess || mutant(Mutant::kUnsignalledCompletes);
  ++oldest_;
  if (!signaled) return;
  const Completion completion{.id = wqe.request.id,
                              .status = status,
                              .opcode = completion_of(wqe.request.opcode),
                              .byte_count = wqe.length,
                              .qp_number = qp_.config().number,
                              .solicited = status != Status::kSuccess};
  queue.release_to(oldest_);
  qp_.complete_send(completion);
}

void Requester::flush() {
  SendQueue& queue = *qp_.config().send_queue;
  rewind();
  rnr_until_.reset();
  const std::uint32_t end =
      queue.tail();  // what is posted meanwhile rings the doorbell and is flushed then
  while (oldest_ != end) complete_oldest(Status::kFlushError);
  queue.release_to(oldest_);
  cursor_ = assigned_ = oldest_;
  cursor_psn_ = unacked_psn_ = high_psn_;
}

}  // namespace verbena::engine
