// SPDX-License-Identifier: Apache-2.0
//
// The responder's second half: the line of answers that wait, and how they go out.
#include <algorithm>

#include "engine/message.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"
#include "engine/responder.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kTurnTrains = 16;

}  // namespace

void Responder::acknowledged() {
  answers_.clear();
  qp_.count(&Counters::acks_sent);
}

std::uint32_t Responder::waiting(bool duplicates) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(answers_, [&](const Answer& answer) {
    const bool counts =
        answer.kind != Answer::Kind::kAcknowledge && answer.kind != Answer::Kind::kNak;
    return counts && answer.duplicate == duplicates;
  }));
}

/// False when there is no room: the request is then as if lost, and comes again.
bool Responder::push(const Answer& answer) {
  if (answers_.size() >= answers_limit_) return false;
  answers_.push_back(answer);
  return true;
}

/// Everything before the expected PSN; a waiting acknowledgement at the end of the line grows
/// instead of another one.
void Responder::answer_acknowledge() {
  const std::uint32_t psn = psn_add(expected_psn_, wire::kMask24);
  if (!answers_.empty() && answers_.back().kind == Answer::Kind::kAcknowledge) {
    answers_.back().psn = psn;
    answers_.back().msn = msn_;
    return;
  }
  if (answers_.size() >= answers_limit_) [[unlikely]]
    return;
  Answer& answer = answers_.emplace_back();  // in place: see wire::Segment::renew()
  answer.kind = Answer::Kind::kAcknowledge;
  answer.psn = psn;
  answer.msn = msn_;
  answer.aeth_kind = wire::Aeth::Kind::kAck;
  answer.aeth_value = wire::Aeth::kNoCredits;
}

void Responder::answer_nak(wire::Aeth::Kind kind, std::uint8_t value, std::uint32_t psn) {
  static_cast<void>(push({.kind = Answer::Kind::kNak,
                          .psn = psn,
                          .msn = msn_,
                          .aeth_kind = kind,
                          .aeth_value = value}));
}

/// READ responses keep the queue pair's pace, and what is behind one waits with it.
Fill Responder::fill(TrainBatch& batch, Time now) {
  const std::uint32_t mtu = qp_.mtu();
  std::uint32_t trains = 0;
  std::size_t done = 0;
  bool paced = false;
  while (done < answers_.size() && !batch.full() && trains < kTurnTrains) {
    Answer& answer = answers_[done];
    const bool read = answer.kind == Answer::Kind::kRead;
    paced = read && qp_.pace().admits_responses(mtu, 1, now) == 0;
    if (paced) break;
    ++trains;
    if (!read) {
      send_simple(batch, answer);
      ++done;
    } else if (send_read(batch, answer, now)) {
      ++done;
    }
  }
  answers_.erase(answers_.begin(), answers_.begin() + static_cast<std::ptrdiff_t>(done));
  return answers_.empty() || paced ? Fill::kIdle : Fill::kMore;
}

void Responder::send_simple(TrainBatch& batch, const Answer& answer) {
  wire::Train& train = batch.next();
  const bool atomic = answer.kind == Answer::Kind::kAtomic || answer.kind == Answer::Kind::kPlaced;
  train.path = &qp_.path();
  const wire::Opcode opcode = answer.kind == Answer::Kind::kAtomic
                                  ? wire::Opcode::kRcAtomicAcknowledge
                              : atomic ? wire::Opcode::kRcReadResponseOnly
                                       : wire::Opcode::kRcAcknowledge;
  train.head.bth.opcode = opcode_of(qp_.config().type, opcode);
  train.head.bth.destination_qp = qp_.attributes().destination_qp;
  train.head.bth.psn = answer.psn;
  train.head.aeth =
      atomic ? wire::Aeth{.msn = answer.msn}
             : wire::Aeth{.kind = answer.aeth_kind, .value = answer.aeth_value, .msn = answer.msn};
  train.head.atomic_ack_eth = {.original = answer.original};
  if (answer.kind != Answer::Kind::kNak) {
    qp_.count(&Counters::acks_sent);
  } else if (answer.aeth_kind == wire::Aeth::Kind::kRnrNak) {
    qp_.count(&Counters::rnr_naks_sent);
  } else {
    qp_.count(sent_nak_counter(static_cast<wire::NakCode>(answer.aeth_value)));
  }
}

/// The next part of a READ response; true when it was the last one.
bool Responder::send_read(TrainBatch& batch, Answer& answer, Time now) {
  const std::uint32_t mtu = qp_.mtu();
  const auto index = static_cast<std::uint32_t>(psn_distance(answer.psn, answer.first_psn));
  const auto left = static_cast<std::uint32_t>(psn_distance(answer.end_psn, answer.psn));
  const std::uint32_t offset = index * mtu;
  const std::uint32_t payload = std::min(answer.length - offset, mtu);
  const std::uint32_t count =
      qp_.pace().admits_responses(payload, std::min(left, turn_packets(mtu)), now);
  const std::uint32_t size = std::min(answer.length - offset, count * mtu);
  std::span<const ConstBytes> pieces;
  if (size != 0) {
    const auto bytes = core_.memory.lookup_remote(answer.rkey, answer.address + offset, size,
                                                  kRemoteRead, user(answer.pd));
    if (!bytes && answer.duplicate) {
      refuse_again(answer.psn);
      return true;
    }
    if (!bytes || !present(*bytes)) {
      // The region or its memory went away since the request was checked: a NAK takes the place of
      // this answer and all later ones, whose requests then do not count as completed.
      const std::uint32_t psn = answer.psn;
      msn_ = answer.duplicate ? answer.msn : (answer.msn - 1) & wire::kMask24;
      answers_.resize(static_cast<std::size_t>(&answer - answers_.data()));
      refuse_at(psn, wire::NakCode::kRemoteAccessError, Status::kRemoteAccessError);
      return false;
    }
    pieces = batch.gather(*bytes);
  }
  using enum wire::Opcode;
  const QpType type = qp_.config().type;
  const bool ends_here = count == left;
  wire::Train& train = batch.next();
  train.path = &qp_.path();
  wire::Bth& bth = train.head.bth;
  const bool last = ends_here && count == 1;
  bth.opcode = opcode_of(type, index == 0 ? (last ? kRcReadResponseOnly : kRcReadResponseFirst)
                                          : (last ? kRcReadResponseLast : kRcReadResponseMiddle));
  bth.destination_qp = qp_.attributes().destination_qp;
  bth.psn = answer.psn;
  train.middle_opcode = opcode_of(type, kRcReadResponseMiddle);
  train.last_opcode = opcode_of(type, ends_here ? kRcReadResponseLast : kRcReadResponseMiddle);
  train.head.aeth = {.msn = answer.msn};
  train.count = count;
  train.segment_size = mtu;
  train.payload_size = size;
  train.gather = pieces;
  qp_.count(&Counters::bytes_sent, size);
  qp_.pace().sent_responses(payload, count, now);
  answer.psn = psn_add(answer.psn, count);
  return ends_here;
}

}  // namespace verbena::engine
