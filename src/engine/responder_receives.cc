// SPDX-License-Identifier: Apache-2.0
//
// The responder's third part: the receives that messages take, and how messages and the queue pair
// end when something is wrong.
#include "engine/mutants.h"
#include "engine/queue_pair.h"
#include "engine/responder.h"

namespace verbena::engine {

/// Takes the oldest receive unless the message has one; without any, an RNR NAK asks for this
/// packet again later.
bool Responder::take_receive() { return receive_taken_ || got(target_.receives->take(receive_)); }

/// What to do with what was taken.
bool Responder::got(ReceiveSource::Taken taken) {
  if (taken == ReceiveSource::Taken::kYes) {
    receive_taken_ = true;
    return true;
  }
  if (taken == ReceiveSource::Taken::kFailed) {
    refuse(wire::NakCode::kRemoteOperationalError, Status::kFatalError);
    return false;
  }
  if (!qp_.reliable()) {
    qp_.count(&Counters::no_receive);
    drop_message();
    return false;
  }
  nak_sent_ = true;
  answer_nak(wire::Aeth::Kind::kRnrNak, qp_.attributes().min_rnr_timer, expected_psn_);
  return false;
}

void Responder::complete_receive(const wire::Packet& packet, CompletionOpcode opcode,
                                 std::uint32_t bytes) {
  receive_taken_ = false;
  qp_.complete_receive(*target_.completions, completion_for(packet, opcode, bytes));
  tagged_ = {};
}

/// Of the receive that was taken last.
Completion Responder::completion_for(const wire::Packet& packet, CompletionOpcode opcode,
                                     std::uint32_t bytes) const {
  const wire::OpcodeInfo& info = packet.info();
  const bool matched = tagged_.kind == Tagged::Kind::kMatched;
  const bool first = matched && !tagged_.told;
  return {.id = receive_.id,
          .tag = first ? tagged_.header.tag : 0,
          .opcode = opcode,
          .byte_count = bytes,
          .immediate_or_key = info.has_ieth ? packet.ieth.rkey : packet.immediate.value,
          .qp_number = qp_.config().number,
          .source_qp = qp_.attributes().destination_qp,
          .application_context = first ? tagged_.header.application_context : 0,
          .with_immediate = info.has_immediate,
          .with_invalidate = info.has_ieth,
          .tag_matched = first,
          .data_valid = matched,
          .solicited = packet.bth.solicited && !mutant(Mutant::kSolicitedLost)};
}

void Responder::fail_receive(Status status) {
  if (!receive_taken_) return;
  forget_unexpected();
  receive_taken_ = false;
  qp_.complete_receive(
      *target_.completions,
      {.id = receive_.id, .status = status, .qp_number = qp_.config().number, .solicited = true});
}

/// RC: NAKs a PSN and ends the queue pair; the NAK still goes out. UC: drops the message, unless
/// the fault is our own.
void Responder::refuse_at(std::uint32_t psn, wire::NakCode code, Status receive_status) {
  if (qp_.reliable()) {
    answer_nak(wire::Aeth::Kind::kNak, static_cast<std::uint8_t>(code), psn);
  } else if (code != wire::NakCode::kRemoteOperationalError) {
    return drop_message();
  }
  fail_receive(receive_status);
  qp_.raise(code == wire::NakCode::kRemoteAccessError ? EventKind::kAccessError
            : code == wire::NakCode::kInvalidRequest  ? EventKind::kRequestError
                                                      : EventKind::kFatal);
  qp_.enter_error(true);
}

void Responder::refuse(wire::NakCode code, Status receive_status) {
  refuse_at(expected_psn_, code, receive_status);
}

void Responder::forget(const ReceiveSource& receives) {
  if (target_.receives != &receives) return;
  target_ = own_;
  message_ = Message::kNone;
  receive_taken_ = false;
}

/// A repeated READ whose key opens nothing any more. The network may have repeated it, long after
/// the requester used the answer and let its memory go: then nobody looks at this NAK. It tells a
/// requester that does wait, and ends nothing here.
void Responder::refuse_again(std::uint32_t psn) {
  answer_nak(wire::Aeth::Kind::kNak, static_cast<std::uint8_t>(wire::NakCode::kRemoteAccessError),
             psn);
}

void Responder::flush() {
  message_ = Message::kNone;
  fail_receive(Status::kFlushError);
  // They stay for others; of an XRC target none are its own.
  const bool flushes = mutant(Mutant::kSharedReceivesFlushed) && qp_.config().receives != nullptr;
  if (qp_.shares_receives() && !flushes) return;
  if (mutant(Mutant::kFlushSkipsReceives)) return;
  while (qp_.config().receives->take(receive_) == ReceiveSource::Taken::kYes) {
    receive_taken_ = true;
    fail_receive(Status::kFlushError);
  }
}

}  // namespace verbena::engine
