// SPDX-License-Identifier: Apache-2.0
//
// The responder's fifth part: SENDs and WRITEs of one packet that are expected, in short, and rows
// of them.
#include <cstdint>
#include <span>
#include <utility>

#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"
#include "engine/responder.h"

namespace verbena::engine {
namespace {

bool writes(const wire::Packet& packet) {
  return packet.info().operation == wire::Operation::kWrite;
}

}  // namespace

/// What is the same for all packets of a kind and size, while nothing else happens.
bool Responder::takes_plain(const wire::Packet& packet) const {
  const bool fits =
      writes(packet) ? !packet.info().has_immediate
                     : packet.info().operation == wire::Operation::kSend && !packet.info().has_ieth;
  return fits && takes_plain(packet.payload.size()) && qp_.reliable();
}

bool Responder::takes_plain(std::size_t size) const {
  return message_ == Message::kNone && tags_ == nullptr && qp_.config().directory == nullptr &&
         size <= qp_.mtu();
}

bool Responder::handle_plain(const wire::Packet& packet) {
  if (packet.bth.psn != expected_psn_ || !takes_plain(packet)) return false;
  if (!(writes(packet) ? write_plain(packet) : receive_plain(packet.payload))) return false;
  if (!writes(packet)) {
    complete_receive(packet, CompletionOpcode::kReceive,
                     static_cast<std::uint32_t>(packet.payload.size()));
  }
  nak_sent_ = false;
  ahead_ = 0;
  finish_packets(packet, 1);
  return true;
}

/// What is taken for it stays taken when something is wrong.
bool Responder::receive_plain(ConstBytes payload) {
  receive_taken_ = receive_taken_ || target_.receives->take(receive_) == ReceiveSource::Taken::kYes;
  if (!receive_taken_ || payload.size() > receive_.length) return false;
  if (receive_.pieces.size() != 1 || payload.empty())
    return scatter(core_.memory, receive_.pieces, 0, payload, receive_.pd).has_value();
  const Sge& piece = receive_.pieces.front();
  const auto bytes =
      core_.memory.lookup(piece.lkey, piece.address, payload.size(), kLocalWrite, receive_.pd);
  return bytes && place(bytes->data(), payload);
}

bool Responder::receive_short(const wire::ShortSend& message) {
  return message.psn == expected_psn_ && takes_plain(message.payload.size()) &&
         receive_plain(message.payload);
}

void Responder::end_short(const wire::ShortSend& message) {
  receive_taken_ = false;
  qp_.complete_receive(*target_.completions,
                       {.id = receive_.id,
                        .opcode = CompletionOpcode::kReceive,
                        .byte_count = static_cast<std::uint32_t>(message.payload.size()),
                        .qp_number = qp_.config().number,
                        .source_qp = qp_.attributes().destination_qp,
                        .solicited = message.solicited && !mutant(Mutant::kSolicitedLost)});
  nak_sent_ = false;
  ahead_ = 0;
  finish(message.payload.size(), 1, true, true);
}

/// What it has written it writes again when something is wrong.
bool Responder::write_plain(const wire::Packet& packet) {
  const std::size_t size = packet.payload.size();
  const bool allowed = (qp_.attributes().access & kRemoteWrite) != 0;
  if (mutant(Mutant::kWriteConsumesReceive) || !allowed || size == 0 ||
      packet.reth.dma_length != size)
    return false;
  const auto range = core_.memory.lookup_remote(packet.reth.rkey, packet.reth.address, size,
                                                kRemoteWrite, user(target_.pd));
  return range && place(range->data(), packet.payload);
}

bool Responder::take_in_row(const wire::Packet& packet) {
  if (packet.bth.psn != expected_psn_ || row_ == core_.row_receives.size()) return false;
  if (row_ == 0 && (packet.info().has_immediate || !takes_plain(packet))) return false;
  if (writes(packet)) {
    if (!write_plain(packet)) return false;
  } else {
    if (!receive_plain(packet.payload)) return false;
    receive_taken_ = false;
    core_.row_receives[row_] = receive_.id;
  }
  ++row_;
  expected_psn_ = psn_add(expected_psn_, 1);
  row_asks_ = row_asks_ || packet.bth.ack_request;
  return true;
}

std::uint32_t Responder::end_row(const wire::Packet& like) {
  const std::uint32_t count = std::exchange(row_, 0);
  if (count == 0) return 0;
  const auto size = static_cast<std::uint32_t>(like.payload.size());
  nak_sent_ = false;
  ahead_ = 0;
  msn_ = (msn_ + count) & wire::kMask24;
  qp_.count(&Counters::bytes_received, std::uint64_t{size} * count);
  if (!writes(like)) {
    qp_.complete_receives(*target_.completions,
                          completion_for(like, CompletionOpcode::kReceive, size),
                          std::span(core_.row_receives).first(count));
  }
  if (std::exchange(row_asks_, false)) answer_acknowledge();
  return count;
}

}  // namespace verbena::engine
