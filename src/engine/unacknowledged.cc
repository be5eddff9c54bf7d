// SPDX-License-Identifier: Apache-2.0
#include "engine/unacknowledged.h"

#include <algorithm>

#include "engine/message.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"
#include "engine/send_opcode.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kQkeyFromQp = 0x8000'0000;  ///< top bit: the queue pair's own Q_Key is sent
constexpr std::uint32_t kTurnTrains = 64;
/// A reader empties a full ring within a few hundred microseconds.
constexpr Duration kLookAgain = std::chrono::microseconds(50);

}  // namespace

void UnacknowledgedSender::reset() {
  oldest_ = cursor_ = qp_.config().send_queue->tail();
  qp_.config().send_queue->clear();
  sent_ = next_psn_ = 0;
  look_again_ = kNever;
}

void UnacknowledgedSender::start() { next_psn_ = qp_.attributes().sq_psn; }

Fill UnacknowledgedSender::fill(TrainBatch& batch, Time now) {
  SendQueue& queue = *qp_.config().send_queue;
  for (std::uint32_t trains = 0; cursor_ != queue.tail(); ++trains) {
    if (sent_ == 0 && qp_.state() == QpState::kSqd) return Fill::kIdle;
    if (batch.full() || trains == kTurnTrains) return Fill::kMore;
    if (qp_.pace().admits_requests(qp_.mtu(), 1, now) == 0) return Fill::kIdle;
    if (!has_room(queue.at(cursor_), now)) return Fill::kIdle;
    const Status status = send(batch, queue.at(cursor_), now);
    if (status == Status::kSuccess) continue;
    // The link has not taken what is in this batch yet: the failure waits until that is complete.
    if (oldest_ != cursor_) return Fill::kMore;
    complete(queue.at(oldest_), status);
    cursor_ = oldest_;
    sent_ = 0;
    qp_.enter_send_queue_error();
    return Fill::kIdle;
  }
  return Fill::kIdle;
}

bool UnacknowledgedSender::has_room(const SendWqe& wqe, Time now) {
  look_again_ = kNever;
  if (!core_.config.has_room || is_local(wqe.request.opcode)) return true;
  const wire::Path& path = qp_.connected() ? qp_.path() : wqe.request.target.path;
  if (path.channel == 0) return true;
  const std::uint32_t mtu = qp_.mtu();
  const std::uint32_t left = wqe.length - sent_ * mtu;
  const std::uint32_t packets = std::min(packet_count(left, mtu), turn_packets(mtu));
  const std::size_t bytes = std::min(left, packets * mtu) + packets * wire::kMaxHeaderSize;
  if (core_.config.has_room(path, bytes, now)) return true;
  look_again_ = now + kLookAgain;
  return false;
}

Status UnacknowledgedSender::send(TrainBatch& batch, SendWqe& wqe, Time now) {
  if (is_local(wqe.request.opcode)) return do_locally(wqe);
  if (qp_.connected()) return send_message(batch, wqe, now);
  const Status status = send_datagram(batch, wqe);
  if (status == Status::kSuccess) qp_.pace().sent_requests(wqe.length, 1, now);
  return status;
}

Status UnacknowledgedSender::do_locally(const SendWqe& wqe) {
  const Status status = execute_locally(core_.memory, qp_, wqe.request);
  if (status != Status::kSuccess) return status;
  const bool behind_others = oldest_ != cursor_;  // which are confirmed when the link has them
  ++cursor_;
  if (!behind_others) confirm();
  return status;
}

Status UnacknowledgedSender::send_datagram(TrainBatch& batch, const SendWqe& wqe) {
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
  train.path = &request.target.path;
  train.head.bth.opcode = immediate ? wire::Opcode::kUdSendOnlyImm : wire::Opcode::kUdSendOnly;
  train.head.bth.destination_qp = request.target.qp_number;
  train.head.bth.psn = next_psn_;
  const bool own_key = (request.target.qkey & kQkeyFromQp) != 0;
  train.head.deth = {.qkey = own_key ? qp_.attributes().qkey : request.target.qkey,
                     .source_qp = qp_.config().number};
  train.head.immediate = {.value = request.immediate};
  train.solicited_last = request.solicited;
  train.segment_size = core_.config.port_mtu;
  train.payload_size = wqe.length;
  train.gather = pieces;
  qp_.count(&Counters::bytes_sent, wqe.length);
  if (request.target.qp_number == wire::kMulticastQp) qp_.count(&Counters::multicasts_sent);
  next_psn_ = psn_add(next_psn_, 1);
  ++cursor_;
  return Status::kSuccess;
}

Status UnacknowledgedSender::send_message(TrainBatch& batch, SendWqe& wqe, Time now) {
  const std::uint32_t mtu = qp_.mtu();
  wqe.psn_count = packet_count(wqe.length, mtu);
  wqe.payload = mtu;
  wqe.spread = false;
  const std::uint32_t wanted = std::min(wqe.psn_count - sent_, turn_packets(mtu));
  const std::uint32_t payload = wqe.psn_count == 1 ? wqe.length : mtu;
  const std::uint32_t count = qp_.pace().admits_requests(payload, wanted, now);
  const MessagePart part{.index = sent_, .count = count, .psn = next_psn_};
  if (!send_part(batch, core_.memory, qp_, wqe, part)) return Status::kLocalProtectionError;
  qp_.pace().sent_requests(payload, count, now);
  next_psn_ = psn_add(next_psn_, count);
  sent_ += count;
  if (sent_ == wqe.psn_count) {
    sent_ = 0;
    ++cursor_;
  }
  return Status::kSuccess;
}

void UnacknowledgedSender::confirm() {
  while (oldest_ != cursor_) complete(qp_.config().send_queue->at(oldest_), Status::kSuccess);
}

void UnacknowledgedSender::complete(const SendWqe& wqe, Status status) {
  const bool signaled =
      wqe.request.signaled || qp_.config().signal_all || status != Status::kSuccess;
  ++oldest_;
  if (!signaled) return;
  const Completion completion = completion_of(qp_, wqe, status);
  qp_.config().send_queue->release_to(oldest_);
  qp_.complete_send(completion);
}

void UnacknowledgedSender::flush() {
  SendQueue& queue = *qp_.config().send_queue;
  confirm();
  const std::uint32_t end = queue.tail();
  while (oldest_ != end) complete(queue.at(oldest_), Status::kFlushError);
  queue.release_to(oldest_);
  cursor_ = oldest_;
  sent_ = 0;
}

}  // namespace verbena::engine
