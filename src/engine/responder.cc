// SPDX-License-Identifier: Apache-2.0
#include "engine/responder.h"

#include <algorithm>

#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kMaxDmaLength = std::uint32_t{1} << 31;  // C9-94

bool begins(wire::Place place) {
  return place == wire::Place::kFirst || place == wire::Place::kOnly;
}
bool ends(wire::Place place) { return place == wire::Place::kLast || place == wire::Place::kOnly; }
/// A request without bytes has no range, and its key is not looked at (C9-88).
bool has_range(const wire::Reth& reth) {
  return reth.dma_length != 0 || mutant(Mutant::kZeroLengthChecked);
}

}  // namespace

Responder::Responder(Core& core, QueuePair& qp) : core_(core), qp_(qp) {
  const QpConfig& config = qp.config();
  own_ = target_ = {
      .receives = config.receives, .completions = config.receive_completions, .pd = config.pd};
  // Any shared queue of the domain may be meant, with pieces up to the limit.
  receive_.pieces.reserve(config.directory != nullptr ? core.config.max_pieces
                                                      : config.receives->max_pieces());
  if (config.type == QpType::kRc) tags_ = config.receives->tags();
}

void Responder::reset() {
  forget_unexpected();
  expected_psn_ = msn_ = 0;
  nak_sent_ = false;
  ahead_ = 0;
  message_ = Message::kNone;
  dropping_ = false;
  receive_taken_ = false;
  received_ = 0;
  write_left_ = 0;
  target_ = own_;
  answers_.clear();
  saved_.clear();
  saved_next_ = 0;
  repetitions_ = 0;
}

void Responder::start() {
  expected_psn_ = qp_.attributes().rq_psn;
  reserve();
}

void Responder::reserve() {
  const std::size_t depth = std::max<std::size_t>(qp_.attributes().max_dest_rd_atomic, 1);
  // READs and atomics, as often again as duplicates, and an acknowledgement after each.
  answers_limit_ = 4 * depth + 4;
  answers_.reserve(answers_limit_);
  saved_.reserve(depth);
}

// --- Requests

void Responder::handle_request(const wire::Packet& packet, Time) {
  if (packet.info().place == wire::Place::kOnly && handle_plain(packet)) return;
  if (!qp_.reliable()) return handle_unreliable(packet);
  const std::int32_t distance =
      mutant(Mutant::kPsnWindowUnsigned)
          ? static_cast<std::int32_t>(packet.bth.psn) - static_cast<std::int32_t>(expected_psn_)
          : psn_distance(packet.bth.psn, expected_psn_);
  if (distance < 0) {
    qp_.count_useless(&Counters::duplicates);
    return handle_duplicate(packet);
  }
  if (distance > 0) {
    // One NAK with the expected PSN, then silence until it arrives.
    note_ahead();
    if ((nak_sent_ && !mutant(Mutant::kNakRepeats)) || mutant(Mutant::kNoNak)) return;
    nak_sent_ = true;
    answer_nak(wire::Aeth::Kind::kNak, static_cast<std::uint8_t>(wire::NakCode::kSequenceError),
               mutant(Mutant::kNakWithReceivedPsn) ? packet.bth.psn : expected_psn_);
    return;
  }
  nak_sent_ = false;
  ahead_ = 0;
  execute(packet);
}

/// What was under way when a packet got lost, or found no receive, comes after it: a window at
/// most, before the missing packet is sent again.
void Responder::note_ahead() {
  const std::uint32_t window = core_.config.window_max / kPacketOverhead;
  if (ahead_ >= window) return qp_.count_useless(&Counters::out_of_sequence);
  ++ahead_;
  qp_.count(&Counters::out_of_sequence);
}

/// A gap costs the message in which it is: the next one goes on with its own PSN.
void Responder::handle_unreliable(const wire::Packet& packet) {
  const bool gap = packet.bth.psn != expected_psn_;
  if (gap) qp_.count(&Counters::out_of_sequence);
  expected_psn_ = packet.bth.psn;
  if (begins(packet.info().place)) {
    message_ = Message::kNone;
    dropping_ = false;
  } else if (gap && !mutant(Mutant::kUcGapIgnored)) {
    dropping_ = true;
  }
  if (!dropping_) execute(packet);
  expected_psn_ = psn_add(packet.bth.psn, 1);
}

void Responder::drop_message() {
  dropping_ = true;
  message_ = Message::kNone;
  if (mutant(Mutant::kUcReceiveLost)) receive_taken_ = false;
}

/// The order of checks: PSN, opcode sequence, opcode and access, resources, length, rkey
/// (engine.md, "Responder"). A shared queue that is not in the domain is an operand that cannot be:
/// an invalid request, for READs, WRITEs and atomics as well, whose keys it decides about.
void Responder::execute(const wire::Packet& packet) {
  if (!in_sequence(packet.info()) || !find_target(packet))
    return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  using wire::Operation;
  switch (packet.info().operation) {
    case Operation::kSend: return execute_send(packet);
    case Operation::kWrite: return execute_write(packet);
    case Operation::kReadRequest: return execute_read(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd: return execute_atomic(packet);
    case Operation::kAtomicWrite: return execute_atomic_write(packet);
    case Operation::kFlush: return execute_flush(packet);
    default: return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  }
}

bool Responder::in_sequence(const wire::OpcodeInfo& info) const {
  const bool starts = begins(info.place);
  switch (message_) {
    case Message::kNone: return starts;
    case Message::kSend: return !starts && info.operation == wire::Operation::kSend;
    case Message::kWrite: return !starts && info.operation == wire::Operation::kWrite;
  }
  return false;
}

/// FIRST and MIDDLE carry exactly the path MTU, LAST 1 to it, ONLY up to it (C9-92).
bool Responder::right_length(const wire::Packet& packet) const {
  const std::size_t mtu = qp_.mtu();
  const std::size_t size = packet.payload.size();
  switch (packet.info().place) {
    case wire::Place::kFirst:
    case wire::Place::kMiddle: return size == mtu;
    case wire::Place::kLast: return size >= 1 && size <= mtu;
    case wire::Place::kOnly: return size <= mtu;
  }
  return false;
}

void Responder::execute_send(const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  if (begins(info.place)) {
    if (tags_ != nullptr ? !take_tagged(packet) : !take_receive()) return;
    received_ = 0;
  }
  if (!right_length(packet))
    return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  if (fetches()) return execute_rendezvous(packet);
  ConstBytes payload = tags_ != nullptr ? behind_header(packet) : packet.payload;
  const std::size_t size = payload.size();
  // A message longer than its receive is an invalid request to the sender (engine.md, "Responder",
  // counts the length among the request's checks; Linux's qib answers so too), a local length error
  // to the receiver. Linux 6.1's rxe was seen to answer "remote operational error", which is for
  // faults of the responder's own, like a receive with a bad key.
  if (received_ + payload.size() > receive_.length) {
    if (!mutant(Mutant::kShortReceiveTruncates)) {
      return refuse(wire::NakCode::kInvalidRequest, Status::kLocalLengthError);
    }
    payload = payload.first(receive_.length - std::min(received_, receive_.length));
  }
  if (!scatter(core_.memory, receive_.pieces, received_, payload, receive_.pd)) {
    return refuse(wire::NakCode::kRemoteOperationalError, Status::kLocalProtectionError);
  }
  received_ += size;
  message_ = Message::kSend;
  if (ends(info.place)) {
    message_ = Message::kNone;
    if (!invalidate_for(packet)) return;
    complete_receive(packet, opcode_of_send(), static_cast<std::uint32_t>(received_));
  } else if (tagged_.kind == Tagged::Kind::kMatched && !tagged_.told) {
    tell_match(packet, Status::kSuccess, 0);
  }
  finish_packets(packet, 1);
}

/// What a SEND asks to be invalidated. A bad key: an error completion and ERR, but no NAK
/// (engine.md, "Responder"); then false.
bool Responder::invalidate_for(const wire::Packet& packet) {
  if (!packet.info().has_ieth || core_.memory.invalidate(packet.ieth.rkey, user(target_.pd)))
    return true;
  fail_receive(Status::kRemoteInvalidRequest);
  qp_.enter_error(true);
  return false;
}

void Responder::execute_write(const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  if ((qp_.attributes().access & kRemoteWrite) == 0 && !mutant(Mutant::kQpAccessIgnored)) {
    return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  }
  // The receive of an immediate is taken at the last packet, which may be RNR NAKed there.
  const bool takes =
      (info.has_immediate && ends(info.place)) ||
      (mutant(Mutant::kImmediateConsumesAtFirst) && info.place == wire::Place::kFirst) ||
      (mutant(Mutant::kWriteConsumesReceive) && ends(info.place));
  if (takes && !take_receive()) return;
  if (!right_length(packet))
    return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  Bytes range;
  if (begins(info.place) && !begin_write(packet, range)) return;
  const auto size = static_cast<std::uint32_t>(packet.payload.size());
  if (ends(info.place) ? size != write_left_ : size >= write_left_) {
    return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  }
  if (size != 0) {
    if (info.place != wire::Place::kOnly) {
      range = core_.memory
                  .lookup_remote(write_rkey_, write_address_, size, kRemoteWrite, user(target_.pd))
                  .value_or(Bytes());
    }
    // The program may have taken the memory away though the region still names it: as with a key
    // that does not.
    if (range.empty() || !place(range.data(), packet.payload))
      return refuse(wire::NakCode::kRemoteAccessError, Status::kLocalAccessError);
  }
  write_address_ += size;
  write_left_ -= size;
  message_ = Message::kWrite;
  if (ends(info.place)) {
    message_ = Message::kNone;
    if (info.has_immediate || mutant(Mutant::kWriteConsumesReceive)) {
      complete_receive(packet, CompletionOpcode::kReceiveWriteWithImm, write_total_);
    }
  }
  finish_packets(packet, 1);
}

/// Sets `range` to the memory of the whole WRITE.
bool Responder::begin_write(const wire::Packet& packet, Bytes& range) {
  const wire::Reth& reth = packet.reth;
  write_address_ = reth.address;
  write_rkey_ = reth.rkey;
  write_left_ = write_total_ = reth.dma_length;
  if (reth.dma_length > kMaxDmaLength) {
    refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
    return false;
  }
  // The whole range is checked before the first byte is placed; a zero-length WRITE has no range
  // (C9-88).
  if (!has_range(reth)) return true;
  const auto found = core_.memory.lookup_remote(reth.rkey, reth.address, reth.dma_length,
                                                kRemoteWrite, user(target_.pd));
  if (!found) {  // a receive that its immediate has taken ends with what IBV_WC_LOC_ACCESS_ERR says
    refuse(wire::NakCode::kRemoteAccessError, Status::kLocalAccessError);
    return false;
  }
  range = *found;
  return true;
}

/// Common to READs and atomics: the rights, and room to answer.
bool Responder::start_rd_atomic(std::uint32_t rights) {
  const bool allowed =
      (qp_.attributes().access & rights) == rights || mutant(Mutant::kQpAccessIgnored);
  const std::uint32_t limit = qp_.attributes().max_dest_rd_atomic;
  if (!allowed || waiting(false) >= limit) {
    refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
    return false;
  }
  return true;
}

void Responder::execute_read(const wire::Packet& packet) {
  const wire::Reth& reth = packet.reth;
  if (!start_rd_atomic(kRemoteRead)) return;
  if (reth.dma_length > kMaxDmaLength) {
    return refuse(wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest);
  }
  if (has_range(reth) && !core_.memory.lookup_remote(reth.rkey, reth.address, reth.dma_length,
                                                     kRemoteRead, user(target_.pd))) {
    return refuse(wire::NakCode::kRemoteAccessError, Status::kRemoteAccessError);
  }
  const std::uint32_t count = packet_count(reth.dma_length, qp_.mtu());
  const std::uint32_t psn = packet.bth.psn;
  if (!push({.kind = Answer::Kind::kRead,
             .psn = psn,
             .msn = (msn_ + 1) & wire::kMask24,
             .first_psn = psn,
             .end_psn = psn_add(psn, count),
             .address = reth.address,
             .rkey = reth.rkey,
             .pd = target_.pd,
             .length = reth.dma_length})) {
    return;
  }
  msn_ = (msn_ + 1) & wire::kMask24;
  expected_psn_ = psn_add(expected_psn_, count);
}

// --- Payload that is placed while it is verified

Bytes Responder::place_of(const wire::Packet& packet, std::size_t row) const {
  const std::uint32_t size = qp_.mtu();
  if (packet.bth.psn != expected_psn_ || packet.payload.size() != size) return {};
  if (message_ == Message::kSend) {
    if (packet.info().operation != wire::Operation::kSend || tags_ != nullptr) return {};
    return room_for(row, size, [this](std::size_t bytes) {
      return piece_of(core_.memory, receive_.pieces, received_, bytes, receive_.pd);
    });
  }
  const bool writes = message_ == Message::kWrite &&
                      packet.info().operation == wire::Operation::kWrite &&
                      (qp_.attributes().access & kRemoteWrite) != 0;
  if (!writes || size >= write_left_) return {};
  // What is left ends with another packet.
  const std::size_t most = std::min<std::size_t>(row, (write_left_ - 1) / size);
  return room_for(most, size, [this](std::size_t bytes) {
    return core_.memory
        .lookup_remote(write_rkey_, write_address_, bytes, kRemoteWrite, user(target_.pd))
        .value_or(Bytes());
  });
}

void Responder::handle_placed(const wire::Packet& packet, std::uint32_t row) {
  const auto size = static_cast<std::uint32_t>(packet.payload.size()) * row;
  nak_sent_ = false;
  ahead_ = 0;
  if (message_ == Message::kSend) {
    received_ += size;
  } else {
    write_address_ += size;
    write_left_ -= size;
  }
  finish_packets(packet, row);
}

// --- Duplicates

void Responder::handle_duplicate(const wire::Packet& packet) {
  using wire::Operation;
  if (mutant(Mutant::kMsnCountsDuplicates)) msn_ = (msn_ + 1) & wire::kMask24;
  switch (packet.info().operation) {
    case Operation::kSend:
    case Operation::kWrite:
      if (mutant(Mutant::kDuplicateSendExecutes) && packet.info().place == wire::Place::kOnly &&
          message_ == Message::kNone) {
        expected_psn_ = packet.bth.psn;
        return execute(packet);
      }
      return answer_acknowledge();  // of the latest PSN; never executed again (C9-105)
    case Operation::kReadRequest: return duplicate_read(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
    case Operation::kAtomicWrite:
    case Operation::kFlush: return duplicate_atomic(packet);
    default: return;
  }
}

/// Memory is read again, the key checked again; the request may be for a tail with a later PSN.
void Responder::duplicate_read(const wire::Packet& packet) {
  const wire::Reth& reth = packet.reth;
  const std::uint32_t psn = packet.bth.psn;
  // A PSN in the past opens no way round the queue pair's rights: such a READ was never executed.
  const QpAttributes& attributes = qp_.attributes();
  const bool allowed = (attributes.access & kRemoteRead) != 0 && attributes.max_dest_rd_atomic != 0;
  if (!allowed && !mutant(Mutant::kQpAccessIgnored)) return;
  if (reth.dma_length > kMaxDmaLength || mutant(Mutant::kDuplicateReadDropped)) return;
  const std::uint32_t end = psn_add(psn, packet_count(reth.dma_length, qp_.mtu()));
  if (psn_distance(end, expected_psn_) > 0) return;
  const NumberedReceives* const target = named(packet);
  if (target == nullptr ||
      (has_range(reth) && !core_.memory.lookup_remote(reth.rkey, reth.address, reth.dma_length,
                                                      kRemoteRead, user(target->pd)))) {
    return refuse_again(psn);
  }
  suspect_path(psn, end);
  const Answer again{.kind = Answer::Kind::kRead,
                     .duplicate = true,
                     .psn = psn,
                     .msn = msn_,
                     .first_psn = psn,
                     .end_psn = end,
                     .address = reth.address,
                     .rkey = reth.rkey,
                     .pd = target->pd,
                     .length = reth.dma_length};
  for (Answer& waiting : answers_) {
    if (waiting.kind != Answer::Kind::kRead) continue;
    if (psn_distance(psn, waiting.first_psn) < 0 || psn_distance(psn, waiting.end_psn) >= 0)
      continue;
    const Answer before = waiting;
    waiting = again;
    waiting.duplicate = before.duplicate;
    waiting.msn = before.msn;
    return;
  }
  if (waiting(true) < std::max<std::uint32_t>(qp_.attributes().max_dest_rd_atomic, 1))
    static_cast<void>(push(again));
}

/// A READ that is repeated from the same packet on, twice: none of several answers arrived.
void Responder::suspect_path(std::uint32_t psn, std::uint32_t end) {
  repetitions_ = psn == repeated_psn_ ? repetitions_ + 1 : 1;
  repeated_psn_ = psn;
  if (repetitions_ == kSuspiciousRetries && psn_distance(end, psn) > 1)
    qp_.raise(EventKind::kPathSuspected);
}

// --- Common to both

/// What a request is for: the queue pair's own receives, or for XRC those that it names; null when
/// the domain has none of that number.
const NumberedReceives* Responder::named(const wire::Packet& packet) const {
  const ReceiveDirectory* const directory = qp_.config().directory;
  return directory == nullptr ? &own_ : directory->find(packet.xrceth.srq_number);
}

/// Finds what a request that is executed is for; the packets of a message are all for the same.
bool Responder::find_target(const wire::Packet& packet) {
  if (qp_.config().directory == nullptr) return true;
  if (message_ != Message::kNone && packet.xrceth.srq_number != target_srq_) return false;
  const NumberedReceives* const target = named(packet);
  const NumberedReceives before = target_;
  const bool again = before.receives != nullptr;
  if (target == nullptr) return again && mutant(Mutant::kXrcStrangerLands);
  target_ = *target;
  if (again && mutant(Mutant::kXrcQueueStays)) target_.receives = before.receives;
  if (again && mutant(Mutant::kXrcCompletionsStay)) target_.completions = before.completions;
  if (again && mutant(Mutant::kXrcKeysStay)) target_.pd = before.pd;
  target_srq_ = packet.xrceth.srq_number;
  return true;
}

KeyUser Responder::user(std::uint32_t pd) const {
  return {.pd = pd, .qp_number = qp_.config().number};
}

/// Common to the packets of SENDs and WRITEs that were executed: `count` alike.
void Responder::finish_packets(const wire::Packet& last, std::uint32_t count) {
  finish(last.payload.size() * count, count, ends(last.info().place),
         last.bth.ack_request && qp_.reliable());
}

/// `ends_one`: a message, with the last of the packets.
void Responder::finish(std::uint64_t bytes, std::uint32_t packets, bool ends_one, bool asks) {
  if (ends_one) msn_ = (msn_ + 1) & wire::kMask24;
  qp_.count(&Counters::bytes_received, bytes);
  expected_psn_ = psn_add(expected_psn_, packets);
  if (asks) answer_acknowledge();
}

}  // namespace verbena::engine
