// SPDX-License-Identifier: Apache-2.0
//
// The requester's third part: what it does when no answer comes, and how its requests end.
#include <algorithm>

#include "engine/message.h"
#include "engine/mutants.h"
#include "engine/psn.h"
#include "engine/queue_pair.h"
#include "engine/requester.h"

namespace verbena::engine {
namespace {

constexpr std::uint8_t kRnrForever = 7;

}  // namespace

/// Answers a sign of loss at unacked_psn_: once until there is progress, since many packets may
/// report the same loss; the ACK time-out takes care of what is lost again.
void Requester::recover() {
  if (recovering_ || waits_for_receive()) return;
  if (!take_retry()) return fail_oldest(Status::kRetryExceeded);
  recovering_ = true;
  note_loss();
  rewind();
}

/// Back to the oldest unacknowledged PSN. The ACK time-out starts again with the first packet that
/// goes out.
void Requester::rewind() {
  ack_deadline_ = kNever;
  direct_bytes_ = 0;
  holds_rest_ = false;
  cursor_ = oldest_;
  cursor_psn_ = unacked_psn_;
  if (mutant(Mutant::kGoesBackTooFar) && oldest_ != assigned_) {
    cursor_psn_ = qp_.config().send_queue->at(oldest_).first_psn;
  }
  outstanding_.clear();
  local_error_.reset();
  if (window_ != nullptr) window_->release(outgoing_charge_);
  if (incoming_ != nullptr) incoming_->release(incoming_charge_);
  outgoing_charge_ = 0;
  incoming_charge_ = 0;
}

void Requester::handle_timeout(Time now) {
  if (now >= rnr_until_) rnr_until_ = kNever;
  if (now < ack_deadline_) return;
  ack_deadline_ = kNever;
  if (!under_way()) return;
  qp_.count(&Counters::timeouts);
  suspect_path();
  if (!take_retry()) return fail_oldest(Status::kRetryExceeded);
  note_loss();
  rewind();
}

/// False when the retries are used up.
bool Requester::take_retry() {
  if (mutant(Mutant::kRetryForever)) return true;
  if (retries_left_ == 0) return waits_on(pauses_);
  --retries_left_;
  return true;
}

bool Requester::take_rnr_retry() {
  if (qp_.attributes().rnr_retry == kRnrForever || mutant(Mutant::kRnrForever)) return true;
  if (rnr_retries_left_ == 0) return waits_on(rnr_pauses_);
  --rnr_retries_left_;
  return true;
}

/// Whether a peer that used up the retries is waited for nevertheless: it may stand in a debugger.
bool Requester::waits_on(std::uint8_t& pauses) const {
  const EngineConfig& config = core_.config;
  const QpAttributes& attributes = qp_.attributes();
  if (!config.patient) return false;
  if (config.peers != nullptr &&
      config.peers->gone(attributes.path.destination, attributes.destination_qp))
    return false;
  if (pauses < kMostDoublings) ++pauses;
  return true;
}

/// Two time-outs without progress while several packets were under way (nic.md, "Trains"). Of a
/// READ it is the answers that come in whole sends: their sender suspects the path
/// (Responder::suspect_path).
void Requester::suspect_path() {
  const bool several = psn_distance(high_psn_, unacked_psn_) > 1;
  if (++silent_timeouts_ == kSuspiciousRetries && several && !reading())
    qp_.raise(EventKind::kPathSuspected);
}

bool Requester::reading() const {
  return oldest_ != assigned_ &&
         qp_.config().send_queue->at(oldest_).request.opcode == SendOpcode::kRead;
}

void Requester::note_loss() { (reading() ? *incoming_ : *window_).lost(); }

void Requester::arm(Time now) {
  // 4.096 µs · 2^timeout, 0 is none; never below what a scheduler may take (nic.md, "Progress").
  const std::uint8_t code = qp_.attributes().timeout;
  if (code == 0) return;
  const Duration asked =
      std::chrono::nanoseconds(std::int64_t{4096} << std::min<std::uint8_t>(code, 31));
  const Duration least = std::max(asked, core_.config.min_ack_timeout);
  // The actual one lies between T and 4 T (engine.md, "Requester"): short where a packet was lost,
  // long where a busy machine keeps the peer waiting.
  constexpr std::uint8_t kDoublings = 2;
  const Duration actual = least * (1 << std::min(silent_timeouts_, kDoublings));
  ack_deadline_ = now + lengthened(actual, pauses_);
}

void Requester::fail_oldest(Status status) {
  recall();
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
  const Completion completion = completion_of(qp_, wqe, status);
  queue.release_to(oldest_);
  qp_.complete_send(completion);
}

/// What is under way will not be acknowledged any more, and is the program's again.
void Requester::recall() const {
  if (under_way() && core_.config.recall) core_.config.recall(qp_.path().channel);
}

void Requester::flush() {
  SendQueue& queue = *qp_.config().send_queue;
  recall();
  rewind();
  rnr_until_ = kNever;
  const std::uint32_t end =
      queue.tail();  // what is posted meanwhile rings the doorbell and is flushed then
  while (oldest_ != end) complete_oldest(Status::kFlushError);
  queue.release_to(oldest_);
  cursor_ = assigned_ = oldest_;
  cursor_psn_ = unacked_psn_ = high_psn_;
}

}  // namespace verbena::engine
