// SPDX-License-Identifier: Apache-2.0
#include "engine/queue_pair.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "engine/mutants.h"
#include "engine/psn.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kMinMtu = 256;
constexpr std::uint32_t kMaxMtu = 4096;

Result<void> in_range(std::string_view name, std::uint32_t value, std::uint32_t limit) {
  if (value <= limit) return {};
  return fail(std::errc::invalid_argument,
              fmt::format("{} is {}, the limit is {}", name, value, limit));
}

}  // namespace

QueuePair::QueuePair(Core& core, const QpConfig& config)
    : core_(core),
      config_(config),
      reliable_(is_reliable(config.type)),
      pace_(core.config.congestion),
      requester_(core, *this),
      sender_(core, *this),
      responder_(core, *this),
      datagrams_(core, *this) {}

// --- Attributes and states

Result<void> QueuePair::modify(const QpAttributes& attributes, std::uint32_t mask) {
  const QpState from = state();
  const QpState to = (mask & kMaskState) != 0 ? attributes.state : from;
  VERBENA_TRY(check(attributes, mask, from, to));
  copy(attributes, mask);
  enter(from, to, mask);
  open_to_peer();
  return {};
}

/// Lets a peer on this machine do by itself what its packets might do.
void QueuePair::open_to_peer() {
  const bool opens = core_.config.direct != nullptr && config_.type == QpType::kRc &&
                     path_.channel != 0 && receives_in(state());
  if (!opens) return close_to_peer();
  open_to_peer_ = true;
  std::uint32_t access = attributes_.access & (kRemoteWrite | kRemoteRead);
  if (attributes_.max_dest_rd_atomic == 0) access &= ~std::uint32_t{kRemoteRead};
  core_.config.direct->admit({.qp_number = config_.number,
                              .destination_qp = attributes_.destination_qp,
                              .channel = path_.channel,
                              .pd = config_.pd,
                              .access = access});
}

void QueuePair::close_to_peer() {
  if (std::exchange(open_to_peer_, false))
    core_.config.direct->admit({.qp_number = config_.number});
}

Result<void> QueuePair::check(const QpAttributes& attributes, std::uint32_t mask, QpState from,
                              QpState to) const {
  if ((mask & kMaskCurrentState) != 0 && attributes.current_state != from) {
    return fail(std::errc::invalid_argument,
                fmt::format("the queue pair is in {}, not in {} as cur_qp_state says",
                            to_string(from), to_string(attributes.current_state)));
  }
  VERBENA_TRY(check_transition(config_.type, from, to, mask));
  // As Linux: there is no automatic path migration on RoCE.
  if ((mask & kMaskAlternatePath) != 0)
    return fail(std::errc::invalid_argument, "a RoCE queue pair has no alternate path");
  if ((mask & kMaskPathMtu) != 0) {
    const std::uint32_t mtu = attributes.path_mtu;
    if (!std::has_single_bit(mtu) || mtu < kMinMtu || mtu > kMaxMtu ||
        mtu > core_.config.port_mtu) {
      return fail(std::errc::invalid_argument,
                  fmt::format("path MTU {} is not one of 256 … {}", mtu, core_.config.port_mtu));
    }
  }
  struct Bound {
    std::uint32_t bit;
    std::string_view name;
    std::uint32_t value;
    std::uint32_t limit;
  };
  const Bound bounds[] = {
      {kMaskTimeout, "timeout", attributes.timeout, 31},
      {kMaskRetryCount, "retry_cnt", attributes.retry_count, 7},
      {kMaskRnrRetry, "rnr_retry", attributes.rnr_retry, 7},
      {kMaskMinRnrTimer, "min_rnr_timer", attributes.min_rnr_timer, 31},
      {kMaskPkeyIndex, "pkey_index", attributes.pkey_index, 0},
      {kMaskDestinationQp, "dest_qp_num", attributes.destination_qp, wire::kMask24},
  };
  for (const Bound& bound : bounds) {
    if ((mask & bound.bit) != 0) VERBENA_TRY(in_range(bound.name, bound.value, bound.limit));
  }
  return {};
}

void QueuePair::copy(const QpAttributes& from, std::uint32_t mask) {
  QpAttributes& to = attributes_;
  if ((mask & kMaskSqdNotify) != 0) to.sqd_notify = from.sqd_notify;
  if ((mask & kMaskAccess) != 0) to.access = from.access;
  if ((mask & kMaskPkeyIndex) != 0) to.pkey_index = from.pkey_index;
  if ((mask & kMaskPort) != 0) to.port = from.port;
  if ((mask & kMaskQkey) != 0) to.qkey = from.qkey;
  if ((mask & kMaskPath) != 0) {
    // A connection keeps its way (nic.md, "One address, many processes").
    const bool connects = (mask & kMaskDestinationQp) != 0;
    const std::uint16_t channel = connects ? from.path.channel : path_.channel;
    to.path = path_ = from.path;
    to.path.channel = path_.channel = channel;
    if (core_.config.congestion.on)
      path_.traffic_class =
          static_cast<std::uint8_t>((path_.traffic_class & ~kEcnBits) | kEcnCapable);
  }
  if ((mask & kMaskPathMtu) != 0) to.path_mtu = from.path_mtu;
  if ((mask & kMaskTimeout) != 0) to.timeout = from.timeout;
  if ((mask & kMaskRetryCount) != 0) to.retry_count = from.retry_count;
  if ((mask & kMaskRnrRetry) != 0) to.rnr_retry = from.rnr_retry;
  if ((mask & (kMaskRetryCount | kMaskRnrRetry)) != 0) requester_.renew_retries();
  if ((mask & kMaskRqPsn) != 0) to.rq_psn = from.rq_psn & wire::kMask24;
  if ((mask & kMaskSqPsn) != 0) to.sq_psn = from.sq_psn & wire::kMask24;
  if ((mask & kMaskMaxRdAtomic) != 0) to.max_rd_atomic = from.max_rd_atomic;
  if ((mask & kMaskMinRnrTimer) != 0) to.min_rnr_timer = from.min_rnr_timer;
  if ((mask & kMaskDestinationQp) != 0) to.destination_qp = from.destination_qp;
  if ((mask & kMaskRateLimit) != 0) {
    to.rate_limit = from.rate_limit;
    to.rate_burst = from.rate_burst;
    pace_.limit(std::uint64_t{from.rate_limit} * 1000, from.rate_burst);
  }
  if ((mask & kMaskMaxDestRdAtomic) != 0) {
    to.max_dest_rd_atomic = from.max_dest_rd_atomic;
    if (state() == QpState::kSqd) responder_.reserve();
  }
}

void QueuePair::enter(QpState from, QpState to, std::uint32_t mask) {
  if (to == QpState::kErr) return enter_error(false);
  set_state(to);
  if (to == QpState::kReset) return reset();
  // Of this transition only: the attribute stays.
  if (to == QpState::kSqd && from == QpState::kRts)
    drain_notify_ = (mask & kMaskSqdNotify) != 0 && attributes_.sqd_notify;
  if (from == QpState::kInit && to == QpState::kRtr && has_responder(config_.type))
    responder_.start();
  if (from == QpState::kRtr && to == QpState::kRts) {
    if (has_requester(config_.type)) requester_.start();
    if (!reliable()) sender_.start();
  }
  note_drained();
}

void QueuePair::reset() {
  if (reliable()) {
    requester_.reset();
  } else {
    sender_.reset();
  }
  if (connected()) responder_.reset();
  if (!shares_receives()) config_.receives->clear();
  attributes_ = QpAttributes{};
  established_ = drain_notify_ = overrun_ = cnp_due_ = false;
  events_ = 0;
  path_ = {};
  pace_.reset();
}

void QueuePair::enter_error(bool keep_answers) {
  if (state() == QpState::kErr) return;
  set_state(QpState::kErr);
  close_to_peer();
  cnp_due_ = false;
  if (!shares_receives()) {
    // Either the flush sees a receive that is being posted, or its poster sees the state.
    if (core_.config.fence_posters != nullptr) core_.config.fence_posters();
  } else if (!mutant(Mutant::kLastReceiveUntold)) {
    raise(EventKind::kLastWqeReached);
  }
  if (!keep_answers) responder_.silence();
  // First the rest of the send queue, then the receive queue (engine.md, "Queue pairs and queues").
  if (mutant(Mutant::kFlushReversed)) {
    flush_receives();
    return flush_sends();
  }
  flush_sends();
  flush_receives();
}

void QueuePair::flush_sends() {
  if (reliable()) {
    requester_.flush();
  } else {
    sender_.flush();
  }
}

void QueuePair::flush_receives() {
  if (connected()) {
    responder_.flush();
  } else {
    datagrams_.flush();
  }
}

void QueuePair::enter_send_queue_error() {
  set_state(QpState::kSqe);
  sender_.flush();
}

void QueuePair::posted() {
  if (state() == QpState::kSqe) return sender_.flush();
  if (state() != QpState::kErr) return;
  flush_sends();
  flush_receives();
}

// --- Sending and time

/// PSN 0 and sixteen zero bytes (CA17-44..46); the BECN and no MigReq, as cards send it.
void QueuePair::send_cnp(TrainBatch& batch) {
  cnp_due_ = false;
  wire::Train& train = batch.next();
  train.path = &path_;
  train.head.bth.opcode = wire::Opcode::kCnp;
  train.head.bth.migration = false;
  train.head.bth.becn = true;
  train.head.bth.destination_qp = attributes_.destination_qp;
  train.head.cnp = {};
  count(&Counters::cnps_sent);
}

bool QueuePair::end_at_once(const SendWqe& wqe, Time now) {
  const bool done = requester_.end_at_once(wqe, now);
  if (overrun_) enter_error(false);
  return done;
}

void QueuePair::handle_timeout(Time now) {
  pace_.handle_timeout(now);
  if (reliable()) {
    requester_.handle_timeout(now);
  } else {
    sender_.handle_timeout(now);
  }
  if (overrun_) enter_error(false);
}

Fill QueuePair::fill(TrainBatch& batch, Time now, Acks acks, Rests rests) {
  const bool sends = state() == QpState::kRts || state() == QpState::kSqd;
  if (cnp_due_) send_cnp(batch);
  if (!reliable()) return sends ? sender_.fill(batch, now) : Fill::kIdle;
  const std::size_t before = batch.size();
  const bool acknowledges = responder_.only_acknowledgement();
  // Programs rely on it that a request is complete before the reply to it arrives, as with every
  // card that acknowledges at once. One that polls may have its reply first: what was held goes
  // with it, or behind it.
  const bool hold = acks == Acks::kHold;
  const bool answers_first = !acknowledges || !(hold || held_);
  bool more = answers_first && answer(batch, now);
  const Fill result = sends ? requester_.fill(batch, now, rests) : Fill::kIdle;
  held_ = acknowledges && hold && batch.size() == before;
  if (!answers_first && !held_) {
    const bool rides =
        batch.size() != before && responder_.only_acknowledgement() && let_ride(batch.back());
    more = !rides && answer(batch, now);
  }
  if (overrun_) enter_error(false);
  note_drained();  // by what went without packets
  return more ? Fill::kMore : result;
}

/// By a channel only, between two queue pairs that both send and receive; where it goes behind all,
/// and not in a packet whose payload is placed without a look at it.
bool QueuePair::let_ride(wire::Train& last) {
  const wire::Opcode opcode = last.count == 1 ? last.head.bth.opcode : last.last_opcode;
  const bool can = path_.channel != 0 && config_.type == QpType::kRc &&
                   wire::info(opcode).place != wire::Place::kMiddle;
  if (!can) return false;
  last.piggyback = rider(responder_.acknowledgement());
  responder_.acknowledged();
  return true;
}

bool QueuePair::answer(TrainBatch& batch, Time now) {
  return responder_.has_answers() && responder_.fill(batch, now) == Fill::kMore;
}

bool QueuePair::is_draining() const {
  return state() == QpState::kSqd && !(reliable() ? requester_.drained() : sender_.drained());
}

void QueuePair::note_drained() {
  if (state() != QpState::kSqd || !drain_notify_ || is_draining()) return;
  drain_notify_ = false;
  raise(EventKind::kSendQueueDrained);
}

// --- What the halves report

void QueuePair::complete_send(const Completion& completion) {
  if (completion.status != Status::kSuccess) {
    count(failure_counter(completion.status));
  } else if (completion.opcode == CompletionOpcode::kSend) {
    count(&Counters::sends_completed);
  }
  if (!config_.send_completions->complete(completion)) overrun_ = true;
}

void QueuePair::complete_receive(CompletionSink& completions, const Completion& completion) {
  count(completion.status == Status::kSuccess ? &Counters::receives_completed
                                              : failure_counter(completion.status));
  if (!completions.complete(completion)) overrun_ = true;
}

void QueuePair::complete_receives(CompletionSink& completions, const Completion& completion,
                                  std::span<const std::uint64_t> ids) {
  const std::size_t taken = completions.complete_row(completion, ids);
  count(&Counters::receives_completed, taken);
  if (taken < ids.size()) overrun_ = true;
}

std::optional<EventKind> QueuePair::take_event() {
  if (events_ == 0) return std::nullopt;
  const int bit = std::countr_zero(events_);
  events_ &= events_ - 1;
  return static_cast<EventKind>(bit);
}

}  // namespace verbena::engine
