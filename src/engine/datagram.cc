// SPDX-License-Identifier: Apache-2.0
#include "engine/datagram.h"

#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"
#include "wire/ip_udp.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kQkeyFromQp = 0x8000'0000;  ///< top bit: the queue pair's own Q_Key is sent
constexpr std::uint32_t kTurnTrains = 64;
constexpr std::uint8_t kPacketTypeIpv4 = 0xA;  ///< what UCX reads from wc.sl
constexpr std::uint8_t kPacketTypeIpv6 = 0x9;

}  // namespace

Datagram::Datagram(Core& core, QueuePair& qp) : core_(core), qp_(qp) {
  receive_.pieces.reserve(qp.config().receives->max_pieces());
}

void Datagram::reset() {
  oldest_ = cursor_ = qp_.config().send_queue->tail();
  qp_.config().send_queue->clear();
  next_psn_ = 0;
}

void Datagram::start() { next_psn_ = qp_.attributes().sq_psn; }

// --- Sending

Fill Datagram::fill(TrainBatch& batch) {
  SendQueue& queue = *qp_.config().send_queue;
  for (std::uint32_t trains = 0; cursor_ != queue.tail(); ++trains) {
    if (batch.full() || trains == kTurnTrains) return Fill::kMore;
    const Status status = send(batch, queue.at(cursor_));
    if (status == Status::kSuccess) continue;
    // The link has not taken what is in this batch yet: the failure waits until that is complete.
    if (oldest_ != cursor_) return Fill::kMore;
    complete_send(queue.at(oldest_), status);
    cursor_ = oldest_;
    qp_.enter_send_queue_error();
    return Fill::kIdle;
  }
  return Fill::kIdle;
}

Status Datagram::send(TrainBatch& batch, SendWqe& wqe) {
  const SendRequest& request = wqe.request;
  const bool immediate = request.opcode == SendOpcode::kSendWithImm;
  if (wqe.length > core_.config.port_mtu) return Status::kLocalLengthError;
  std::span<const ConstBytes> pieces;
  if (request.inline_data) {
    pieces = batch.gather(wqe.inline_bytes);
  } else {
    const auto gathered =
        batch.gather(core_.memory, request.pieces, 0, wqe.length, qp_.config().pd);
    if (!gathered) return Status::kLocalProtectionError;
    pieces = *gathered;
  }
  wire::Train& train = batch.next();
  train.path = &wqe.request.target.path;
  train.head.bth.opcode = immediate ? wire::Opcode::kUdSendOnlyImm : wire::Opcode::kUdSendOnly;
  train.head.bth.destination_qp = request.target.qp_number;
  train.head.bth.psn = next_psn_;
  train.head.deth.qkey =
      (request.target.qkey & kQkeyFromQp) != 0 ? qp_.attributes().qkey : request.target.qkey;
  train.head.deth.source_qp = qp_.config().number;
  train.head.immediate.value = request.immediate;
  train.solicited_last = request.solicited;
  train.segment_size = core_.config.port_mtu;
  train.payload_size = wqe.length;
  train.gather = pieces;
  qp_.count(&Counters::bytes_sent, wqe.length);
  next_psn_ = psn_add(next_psn_, 1);
  ++cursor_;
  return Status::kSuccess;
}

void Datagram::confirm() {
  while (oldest_ != cursor_) {
    const SendWqe& wqe = qp_.config().send_queue->at(oldest_);
    complete_send(wqe, Status::kSuccess);
  }
}

void Datagram::complete_send(const SendWqe& wqe, Status status) {
  const bool signaled =
      wqe.request.signaled || qp_.config().signal_all || status != Status::kSuccess;
  ++oldest_;
  if (!signaled) return;
  const Completion completion{.id = wqe.request.id,
                              .status = status,
                              .opcode = CompletionOpcode::kSend,
                              .byte_count = wqe.length,
                              .qp_number = qp_.config().number,
                              .solicited = status != Status::kSuccess};
  qp_.config().send_queue->release_to(oldest_);
  qp_.complete_send(completion);
}

void Datagram::flush_sends() {
  SendQueue& queue = *qp_.config().send_queue;
  confirm();
  const std::uint32_t end = queue.tail();
  while (oldest_ != end) complete_send(queue.at(oldest_), Status::kFlushError);
  queue.release_to(oldest_);
  cursor_ = oldest_;
}

// --- Receiving

void Datagram::handle(const wire::Packet& packet, const wire::Segment& segment) {
  const bool grh = !mutant(Mutant::kGrhMissing);
  if (packet.deth.qkey != qp_.attributes().qkey && !mutant(Mutant::kQkeyIgnored)) {
    qp_.count(&Counters::wrong_qkey);
    return;
  }
  if (packet.payload.size() > core_.config.port_mtu) {
    qp_.count(&Counters::oversized_datagrams);
    return;
  }
  ReceiveSource& receives = *qp_.config().receives;
  const std::size_t total = wire::Grh::kSize + packet.payload.size();
  const auto room = receives.next_length();
  if (!room) {
    qp_.count(&Counters::no_receive);
    return;
  }
  if (total > *room) {
    qp_.count(&Counters::oversized_datagrams);
    return;
  }
  if (!receives.take(receive_)) return;
  Completion completion{.id = receive_.id, .qp_number = qp_.config().number};
  const wire::Grh header =
      wire::make_grh(segment.path, segment.identification.value_or(0), segment.datagram.size());
  const std::uint32_t pd = qp_.config().pd;
  const bool placed =
      (!grh || scatter(core_.memory, receive_.pieces, 0, header.bytes, pd)) &&
      scatter(core_.memory, receive_.pieces, grh ? wire::Grh::kSize : 0, packet.payload, pd);
  if (!placed) {
    completion.status = Status::kLocalProtectionError;
    completion.solicited = true;
    qp_.complete_receive(completion);
    qp_.raise(EventKind::kFatal);
    return qp_.enter_error(false);
  }
  qp_.count(&Counters::bytes_received, packet.payload.size());
  completion.opcode = CompletionOpcode::kReceive;
  completion.byte_count = static_cast<std::uint32_t>(total);
  completion.immediate_or_key = packet.immediate.value;
  completion.source_qp = packet.deth.source_qp;
  completion.service_level = segment.path.destination.is_ipv4() ? kPacketTypeIpv4 : kPacketTypeIpv6;
  completion.with_immediate = packet.info().has_immediate;
  completion.with_grh = true;
  completion.solicited = packet.bth.solicited && !mutant(Mutant::kSolicitedLost);
  qp_.complete_receive(completion);
}

void Datagram::flush_receives() {
  if (qp_.config().receives->shared()) {
    qp_.raise(EventKind::kLastWqeReached);
    return;
  }
  while (qp_.config().receives->take(receive_)) {
    qp_.complete_receive({.id = receive_.id,
                          .status = Status::kFlushError,
                          .qp_number = qp_.config().number,
                          .solicited = true});
  }
}

}  // namespace verbena::engine
