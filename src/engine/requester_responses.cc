// SPDX-License-Identifier: Apache-2.0
//
// The requester's second part: what acknowledgements, NAKs, READ responses and atomic
// acknowledgements do to the requests under way.
#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"
#include "engine/requester.h"
#include "engine/send_opcode.h"

namespace verbena::engine {
namespace {

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

void Requester::handle_piggyback(std::uint32_t psn, Time now) {
  if (psn_distance(psn, unacked_psn_) < 0 || psn_distance(psn, high_psn_) >= 0) {
    qp_.count(&Counters::ghost_responses);
  } else {
    handle_acknowledge(psn, now);
  }
}

void Requester::handle_response(const wire::Packet& packet, Time now) {
  const std::uint32_t psn = packet.bth.psn;
  if (psn_distance(psn, unacked_psn_) < 0 ||
      (psn_distance(psn, high_psn_) >= 0 && !mutant(Mutant::kGhostAckAccepted))) {
    qp_.count_useless(&Counters::ghost_responses);
    return;
  }
  if (mutant(Mutant::kGhostAckAccepted) && psn_distance(psn, high_psn_) >= 0) {
    static_cast<void>(acknowledge_before(high_psn_, now));
    return;
  }
  using wire::Operation;
  if (!known_syndrome(packet)) {
    qp_.count_useless(&Counters::malformed);
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
    case Kind::kAck: return handle_acknowledge(psn, now);
    case Kind::kNak: return handle_nak(packet, now);
    case Kind::kRnrNak: return handle_rnr_nak(packet, now);
    case Kind::kReserved: return;
  }
}

void Requester::handle_acknowledge(std::uint32_t psn, Time now) {
  // A response acknowledges everything before it, except READs and atomics whose own responses are
  // missing: those were lost (engine.md, "Requester").
  if (!acknowledge_before(psn_add(psn, 1), now)) recover();
}

void Requester::handle_nak(const wire::Packet& packet, Time now) {
  const auto code = static_cast<wire::NakCode>(packet.aeth.value);
  qp_.count(received_nak_counter(code));
  if (!acknowledge_before(packet.bth.psn, now)) return recover();
  if (code == wire::NakCode::kSequenceError) return recover();
  fail_oldest(status_of(code));
}

void Requester::handle_rnr_nak(const wire::Packet& packet, Time now) {
  qp_.count(&Counters::rnr_naks_received);
  if (!acknowledge_before(packet.bth.psn, now)) return recover();
  if (waits_for_receive()) return;  // a repetition of the one that we wait for already
  if (mutant(Mutant::kRnrConsumesRetry)) {
    if (retries_left_ == 0) return fail_oldest(Status::kRetryExceeded);
    --retries_left_;
  }
  if (!take_rnr_retry()) return fail_oldest(Status::kRnrRetryExceeded);
  rewind();
  const Duration pause = lengthened(rnr_delay(packet.aeth.value), rnr_pauses_);
  rnr_until_ = mutant(Mutant::kRnrTimerIgnored) ? now : now + pause;
}

void Requester::handle_read_response(const wire::Packet& packet, Time now) {
  const std::uint32_t psn = packet.bth.psn;
  const bool in_order = acknowledge_before(psn, now);
  if (oldest_ == assigned_) return;
  SendWqe& wqe = qp_.config().send_queue->at(oldest_);
  const bool read = wqe.request.opcode == SendOpcode::kRead;
  const bool misplaced = read && mutant(Mutant::kReadResponsePlacedTwice);
  if ((!in_order || psn != unacked_psn_) && !misplaced) return recover();
  const bool placed = is_placement(wqe.request.opcode) &&
                      packet.info().place == wire::Place::kOnly && packet.payload.empty();
  if (placed) return answered(wqe, psn_add(psn, 1), now);
  if (!read) return fail_oldest(Status::kBadResponseError);
  const std::uint32_t mtu = qp_.mtu();
  const auto index = static_cast<std::uint32_t>(psn_distance(unacked_psn_, wqe.first_psn));
  if (!right_place(packet.info().place, wqe, index) && !misplaced) {
    return fail_oldest(Status::kBadResponseError);
  }
  const bool last = index + 1 == wqe.psn_count;
  const std::uint32_t offset = index * mtu;
  const std::uint32_t expected = last ? wqe.length - offset : mtu;
  // Of the right place but too short or too long: the status that Linux's drivers report (qib).
  if (packet.payload.size() != expected) return fail_oldest(Status::kLocalLengthError);
  if (!scatter(core_.memory, wqe.request.pieces, offset, packet.payload, qp_.read_pd())) {
    return fail_oldest(Status::kLocalProtectionError);
  }
  qp_.count(&Counters::bytes_received, packet.payload.size());
  answered(wqe, psn_add(unacked_psn_, 1), now);
}

Bytes Requester::place_of(const wire::Packet& packet, std::size_t row) const {
  const std::uint32_t mtu = qp_.mtu();
  const std::int32_t asked = psn_distance(high_psn_, unacked_psn_);
  const bool expected = packet.bth.psn == unacked_psn_ && packet.payload.size() == mtu &&
                        asked > 0 && oldest_ != assigned_;
  if (!expected) return {};
  const SendWqe& wqe = qp_.config().send_queue->at(oldest_);
  if (wqe.request.opcode != SendOpcode::kRead) return {};
  const auto index = static_cast<std::uint32_t>(psn_distance(unacked_psn_, wqe.first_psn));
  if (!right_place(wire::Place::kMiddle, wqe, index)) return {};
  // A part, and the whole, end with another packet.
  const std::uint32_t middles =
      std::min(wqe.read_part - index % wqe.read_part, wqe.psn_count - index) - 1;
  const std::size_t most = std::min({row, std::size_t{middles}, static_cast<std::size_t>(asked)});
  return room_for(most, mtu, [&](std::size_t bytes) {
    return piece_of(core_.memory, wqe.request.pieces, std::uint64_t{index} * mtu, bytes,
                    qp_.read_pd());
  });
}

void Requester::handle_placed(const wire::Packet& packet, std::uint32_t row, Time now) {
  qp_.count(&Counters::bytes_received, packet.payload.size() * row);
  answered(qp_.config().send_queue->at(oldest_), psn_add(unacked_psn_, row), now);
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
  answered(wqe, psn_add(psn, 1), now);
}

/// Moves over every PSN before `end_psn`. False when a READ or an atomic stands in the way whose
/// response is missing.
bool Requester::acknowledge_before(std::uint32_t end_psn, Time now) {
  SendQueue& queue = *qp_.config().send_queue;
  if (waits_for_one() && end_psn == high_psn_) {
    end_only(queue.at(oldest_));
    note_progress(now);
    return true;
  }
  const std::uint32_t before = unacked_psn_;
  bool all = true;
  while (qp_.state() != QpState::kErr && psn_distance(end_psn, unacked_psn_) > 0 &&
         oldest_ != assigned_) {
    SendWqe& wqe = queue.at(oldest_);
    all = !awaits_response(wqe.request.opcode) || mutant(Mutant::kReadAcknowledgedByLater);
    if (!all) break;
    const std::uint32_t wqe_end = psn_add(wqe.first_psn, wqe.psn_count);
    pass(wqe, psn_distance(end_psn, wqe_end) < 0 ? end_psn : wqe_end);
  }
  if (unacked_psn_ != before) note_progress(now);
  return all;
}

/// All that is under way is one packet, of a request that ends when it is acknowledged: as it is
/// where each side waits for the other.
bool Requester::waits_for_one() const {
  const SendWqe& wqe = qp_.config().send_queue->at(oldest_);
  return oldest_ + 1 == assigned_ && cursor_ == assigned_ && wqe.psn_count == 1 &&
         outstanding_.empty() && qp_.state() != QpState::kErr;
}

/// pass() of that one.
void Requester::end_only(const SendWqe& wqe) {
  const std::uint32_t released = std::min(outgoing_charge_, wqe.packet_cost);
  outgoing_charge_ -= released;
  window_->release(released);
  window_->progressed(released);
  unacked_psn_ = high_psn_;
  complete_oldest(Status::kSuccess);
}

/// The oldest request is acknowledged up to `end_psn`, which lies within it or at its end.
void Requester::pass(SendWqe& wqe, std::uint32_t end_psn) {
  const auto packets = static_cast<std::uint32_t>(psn_distance(end_psn, unacked_psn_));
  const bool read = wqe.request.opcode == SendOpcode::kRead;
  std::uint32_t& charge = read ? incoming_charge_ : outgoing_charge_;
  const std::uint32_t released = std::min(charge, packets * wqe.packet_cost);
  Window& window = read ? *incoming_ : *window_;
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
  if (complete) complete_oldest(Status::kSuccess);
  if (oldest_ != assigned_ && is_local(qp_.config().send_queue->at(oldest_).request.opcode))
    retire_local();
}

/// The oldest request's own response has come, up to `end_psn`.
void Requester::answered(SendWqe& wqe, std::uint32_t end_psn, Time now) {
  pass(wqe, end_psn);
  note_progress(now);
}

void Requester::note_progress(Time now) {
  if (!mutant(Mutant::kRetryNeverReset)) retries_left_ = qp_.attributes().retry_count;
  rnr_retries_left_ = qp_.attributes().rnr_retry;
  silent_timeouts_ = 0;
  pauses_ = rnr_pauses_ = 0;
  recovering_ = false;
  ack_deadline_ = kNever;
  if (under_way() && !waits_for_receive()) arm(now);
}

}  // namespace verbena::engine
