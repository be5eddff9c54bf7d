// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/side.h"

// How an epoch ends: what must have happened by then, and what is taken down.

namespace verbena::sim {

bool Side::may_close() const {
  return sends_.empty() && peer_->sends_.empty() && inbound_.empty() && peer_->inbound_.empty();
}

/// How long a requester goes on at most: a time-out lasts between T and 4 T.
Duration Side::patience() const {
  const Duration timeout =
      std::max(Duration(std::int64_t{4096} << terms_.timeout), world_.plan().min_ack_timeout);
  return 4 * (terms_.retry_count + 3) * timeout + Duration(50'000'000);
}

/// The peer is out of reach from now on: retries run out, or the program hears of it in the end.
void Side::lose_peer() {
  if (state_ != State::kReady && state_ != State::kInit) return;
  told_at_ = world_.now() + patience();
}

/// What must have happened by now.
void Side::check_deadlines() {
  const Time now = world_.now();
  if (now < world_.scheduler().paused_until(process_.index()) + Duration(2'000'000)) return;
  if (connection_.broken) return;
  if (!notifies_.empty() && notifies_.front().until < now && !connection_.silent) {
    fail(fmt::format("message {} completed at the sender, and no event came here",
                     notifies_.front().number));
  }
  const bool times_out = terms_.timeout != 0;
  if (connection_.silent && told_at_ != Time{} && now > told_at_) {
    // Unsignalled requests at the end may have succeeded before and tell nothing.
    const bool waits = std::ranges::any_of(sends_, [&](const SendWork& work) {
      return (work.signaled || terms_.signal_all) && work.posted + patience() < now;
    });
    if (times_out && waits) fail("the peer is silent, and retries are not exhausted");
    connection_.broken = true;
  }
  // RNR waits and naps of the peer's program come on top.
  if (doomed_ && !failed_ && times_out &&
      now > doomed_since_ + patience() + Duration(2'000'000'000)) {
    fail(fmt::format("'{}' was to fail with {}, and did not", to_string(misdeed_),
                     status_name(expected_error_)));
  }
}

/// The connection is broken: whatever is posted must be flushed.
void Side::drain() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  say("ends with {} sends and {} receives posted", sends_.size(), receives_.size());
  for (ibv_qp* const qp : queue_pairs()) {
    if (const int status = ibv_modify_qp(qp, &attr, IBV_QP_STATE); status != 0) {
      fail(fmt::format("to ERR: {}", std::strerror(status)));
    }
    check_state(qp, IBV_QPS_ERR);
  }
  state_ = State::kDraining;
}

/// Since the queue pair went to ERR everything that was posted has completed.
void Side::take_flushed() {
  process_.poll_all();
  // Unsignalled requests that succeeded before it tell nothing.
  while (!sends_.empty() && !failed_ && !sends_.front().signaled && !terms_.signal_all) {
    SendWork work = std::move(sends_.front());
    sends_.pop_front();
    succeed(work);
  }
  if (!sends_.empty() || !receives_.empty()) fail("posted requests were not flushed");
}

void Side::finish_epoch() {
  if (!connection_.resolved) {
    resolve();
    peer_->resolve();
    connection_.resolved = true;
    const Plan& plan = world_.plan();
    connection_.calm_at = world_.now() + 2 * (plan.network.latency + plan.network.jitter) +
                          plan.disturbance.longest_delay + Duration(1'200'000);
    if (connection_.silent) world_.mend(process_.index(), peer_->process_.index());
  }
  if (world_.now() < connection_.calm_at ||
      !world_.host().quiet(process_.address(), peer_->process_.address())) {
    return;
  }
  check_last_receive();
  tear_down();
}

/// Both queue pairs are in ERR and everything has completed: what may have happened has.
void Side::resolve() {
  if (!inbound_.empty() && inbound_.front().number <= peer_->last_success_) {
    fail(fmt::format("message {} completed at its sender, and was never received",
                     inbound_.front().number));
  }
  inbound_.clear();
  if (!zone_) return;
  if (const auto wrong = zone_->check(peer_->never_from_, spoil())) fail(*wrong);
  zone_->adopt();
}

void Side::tear_down() {
  forget_flows();
  if (qp_ != nullptr) {
    if (random().below(2) == 0 && !world_.winding_up()) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_RESET;
      for (ibv_qp* const qp : queue_pairs()) {
        if (ibv_modify_qp(qp, &attr, IBV_QP_STATE) != 0) fail("to RESET failed");
        check_state(qp, IBV_QPS_RESET);
      }
      reuse_ = true;
    } else {
      destroy();
    }
  }
  receives_.clear();  // those of a queue pair in INIT never complete
  drop_zone();
  state_ = State::kDown;
}

void Side::forget_flows() {
  world_.checker().close(process_.address(), qp_number_);
  world_.checker().close(process_.address(), target_number_);
}

void Side::destroy() {
  for (ibv_qp* const qp : queue_pairs()) {
    const std::uint32_t number = qp->qp_num;
    if (const int status = ibv_destroy_qp(qp); status != 0) {
      fail(fmt::format("ibv_destroy_qp: {}", std::strerror(status)));
    }
    process_.leave(number);
  }
  if (qp_ != nullptr && terms_.shared) shared().detach(*this);
  if (qp_ != nullptr && terms_.extended) leave_numbered();
  qp_ = target_ = nullptr;
}

void Side::crash() {
  if (state_ == State::kReady || state_ == State::kDraining || state_ == State::kInit) {
    connection_.silent = true;
    peer_->lose_peer();
    state_ = State::kDrained;
  }
  forget_flows();
  for (const SendWork& work : sends_) note_change(work, Word::Change::Known::kMaybe);
  sends_.clear();
  receives_.clear();
  inbound_.clear();
  notifies_.clear();
  destroy();
  reuse_ = false;
  drop_zone();
  if (connection_.resolved || peer_->state_ == State::kDown) state_ = State::kDown;
}

}  // namespace verbena::sim
