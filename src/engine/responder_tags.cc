// SPDX-License-Identifier: Apache-2.0
//
// The responder's fourth part: messages to receives that have tags (rdma-core, tag_matching.md).
#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "engine/queue_pair.h"
#include "engine/responder.h"

namespace verbena::engine {
namespace {

constexpr std::size_t kRendezvousHeaders = wire::TagHeader::kSize + wire::RendezvousHeader::kSize;
static_assert(kRendezvousHeaders == kRendezvousInline);

/// Whether a message begins as one with a tag must. What does not is for the program to judge, as
/// is what has no tag: it goes into a receive as it came.
bool has_tag(const wire::Packet& packet) {
  const std::size_t size = packet.payload.size();
  if (size < wire::TagHeader::kSize) return false;
  switch (wire::TagHeader::parse(packet.payload.data()).operation) {
    case wire::TagOperation::kEager: return true;
    case wire::TagOperation::kRendezvous:
      return packet.info().place == wire::Place::kOnly && size >= kRendezvousHeaders &&
             size <= kMaxRendezvousRequest;
    default: return false;
  }
}

/// Leaves the first `length` bytes of a list, which has as many.
void shorten(std::vector<Sge>& pieces, std::uint32_t length) {
  std::size_t used = 0;
  for (; length != 0; ++used) {
    pieces[used].length = std::min(pieces[used].length, length);
    length -= pieces[used].length;
  }
  pieces.resize(used);
}

}  // namespace

/// Takes the receive of a message that begins: by its tag, or the oldest one without.
bool Responder::take_tagged(const wire::Packet& packet) {
  tagged_ = {};
  // What is not even a packet of a message takes no tag from others.
  if (!has_tag(packet) || !right_length(packet)) return take_receive();
  const wire::TagHeader header = wire::TagHeader::parse(packet.payload.data());
  const TagMatcher::Matched matched = tags_->match(header.tag, receive_);
  if (!got(matched.taken)) return false;
  tagged_ = {.kind = matched.expected ? Tagged::Kind::kMatched : Tagged::Kind::kUnexpected,
             .header = header};
  return true;
}

/// The message in progress is a rendezvous that was matched.
bool Responder::fetches() const {
  return tagged_.kind == Tagged::Kind::kMatched &&
         tagged_.header.operation == wire::TagOperation::kRendezvous;
}

/// What of a packet goes into its receive: not the header, where that has done its work.
ConstBytes Responder::behind_header(const wire::Packet& packet) const {
  const bool begins_matched = tagged_.kind == Tagged::Kind::kMatched && message_ == Message::kNone;
  return packet.payload.subspan(begins_matched ? wire::TagHeader::kSize : 0);
}

CompletionOpcode Responder::opcode_of_send() const {
  if (tags_ == nullptr) return CompletionOpcode::kReceive;
  return tagged_.kind == Tagged::Kind::kNone ? CompletionOpcode::kNoTag
                                             : CompletionOpcode::kTagReceive;
}

/// Tells that a message was matched, before its data are there; with a status of failure, that they
/// will not be.
void Responder::tell_match(const wire::Packet& packet, Status status, std::uint32_t bytes) {
  tagged_.told = true;
  qp_.complete_receive(*target_.completions,
                       {.id = receive_.id,
                        .tag = tagged_.header.tag,
                        .status = status,
                        .opcode = CompletionOpcode::kTagReceive,
                        .byte_count = bytes,
                        .qp_number = qp_.config().number,
                        .source_qp = qp_.attributes().destination_qp,
                        .application_context = tagged_.header.application_context,
                        .tag_matched = true,
                        .data_valid = status != Status::kSuccess,
                        .solicited = packet.bth.solicited || status != Status::kSuccess});
}

/// The receive's end comes with that of the READ. Where we cannot carry the rendezvous out, the
/// program gets its headers in place of the data.
void Responder::execute_rendezvous(const wire::Packet& packet) {
  if (!invalidate_for(packet)) return;
  const auto where = wire::RendezvousHeader::parse(packet.payload.data() + wire::TagHeader::kSize);
  if (start_rendezvous(where)) {
    tell_match(packet, Status::kSuccess, 0);
  } else {
    const ConstBytes headers =
        packet.payload.first(std::min<std::uint64_t>(kRendezvousHeaders, receive_.length));
    if (!scatter(core_.memory, receive_.pieces, 0, headers, receive_.pd))
      return refuse(wire::NakCode::kRemoteOperationalError, Status::kLocalProtectionError);
    tell_match(packet, Status::kRendezvousIncomplete, static_cast<std::uint32_t>(headers.size()));
  }
  receive_taken_ = false;
  tagged_ = {};
  finish_packets(packet, 1);
}

/// Posts the READ of the payload, and behind it what tells the sender that it has its buffer back.
/// False when the receive is too short, or no READ more can be posted or none at all.
bool Responder::start_rendezvous(const wire::RendezvousHeader& where) {
  SendQueue& queue = *qp_.config().send_queue;
  if (where.length > receive_.length || queue.room() < 2 || qp_.attributes().max_rd_atomic == 0)
    return false;
  shorten(receive_.pieces, where.length);
  const SendRequest read{.id = receive_.id,
                         .opcode = SendOpcode::kRead,
                         .signaled = true,
                         .remote_address = where.address,
                         .rkey = where.rkey,
                         .pieces = receive_.pieces};
  if (!queue.post(read)) return false;  // it is longer than a message can be
  std::array<std::byte, kRendezvousInline> fin{};
  wire::TagHeader header = tagged_.header;
  header.operation = wire::TagOperation::kFin;
  header.encode(fin.data());
  where.encode(fin.data() + wire::TagHeader::kSize);
  const Sge piece{.address = reinterpret_cast<std::uintptr_t>(fin.data()), .length = fin.size()};
  VERBENA_CHECK(queue.post({.opcode = SendOpcode::kSend,
                            .signaled = true,
                            .fence = true,
                            .inline_data = true,
                            .pieces = {&piece, 1}}));
  return true;
}

void Responder::forget_unexpected() {
  if (receive_taken_ && tagged_.kind == Tagged::Kind::kUnexpected) tags_->forget_unexpected();
  tagged_ = {};
}

}  // namespace verbena::engine
