// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sim/side.h"

// The life of a connection's end: made, connected, drained, ended, made again.

namespace verbena::sim {
namespace {

constexpr std::uint32_t kPsnMask = 0xFFFFFF;
constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kZoneAccess = kAllAccess | IBV_ACCESS_MW_BIND;

ibv_mtu to_enum(std::uint32_t mtu) {
  switch (mtu) {
    case 256: return IBV_MTU_256;
    case 512: return IBV_MTU_512;
    case 1024: return IBV_MTU_1024;
    case 2048: return IBV_MTU_2048;
    default: return IBV_MTU_4096;
  }
}

}  // namespace

Side::Side(World& world, Process& process, Connection& connection, int which)
    : world_(world), process_(process), connection_(connection), which_(which) {}

std::string Side::describe() const {
  constexpr std::array kStates = {"down", "init", "ready", "draining", "drained"};
  return fmt::format(
      "{} qp {:#08x} {}, {} sends, {} receives, {} messages to come, misdeed '{}'{}{}", name_,
      qp_number_, kStates[static_cast<std::size_t>(state_)], sends_.size(), receives_.size(),
      inbound_.size(), to_string(misdeed_), connection_.silent ? ", silent" : "",
      connection_.broken ? ", broken" : "");
}

void Side::fail(const std::string& why) {
  world_.fail(fmt::format("{}\n  {}\n  peer: {}", why, describe(), peer_->describe()));
  std::unreachable();
}

bool Side::step() {
  switch (state_) {
    case State::kDown:
      if (world_.winding_up() || !process_.up() || !peer_->process_.up()) return false;
      if (peer_->state_ != State::kDown && peer_->state_ != State::kInit) return false;
      if (world_.silent(process_.index(), peer_->process_.index())) return false;
      create();
      return true;
    case State::kInit:
      if (peer_->state_ == State::kDown) {
        if (!world_.winding_up()) return false;
        tear_down();  // the peer will not come any more
        return true;
      }
      connect();
      return true;
    case State::kReady:
      check_deadlines();
      if (connection_.broken) {
        drain();
        return true;
      }
      return traffic();
    case State::kDraining:
      take_flushed();
      state_ = State::kDrained;
      return true;
    case State::kDrained: {
      const bool both = peer_->state_ == State::kDrained ||
                        (connection_.resolved && peer_->state_ == State::kDown) ||
                        (connection_.resolved && peer_->state_ == State::kInit);
      if (!both) return false;
      finish_epoch();
      return state_ != State::kDrained;
    }
  }
  return false;
}

// Beginning.

/// What both sides agree on; the first one to begin an epoch does it for both.
void Side::agree() {
  connection_.closing = connection_.broken = connection_.silent = connection_.resolved = false;
  ++connection_.epoch;
  ++world_.counters().epochs;
  constexpr std::array<std::uint32_t, 5> kMtus = {256, 512, 1024, 2048, 4096};
  const std::size_t mtus = world_.plan().port_mtu == 1024 ? 3 : 5;
  const std::uint32_t mtu = kMtus[random().below(mtus)];
  const bool lossy = world_.plan().loses() || world_.plan().disturbance.reorder_ppm != 0 ||
                     world_.plan().disturbance.delay_ppm != 0;
  for (Side* side : connection_.sides) {
    Terms terms;
    if (!side->reuse_) {
      constexpr std::array<std::uint32_t, 5> kDepths = {2, 4, 8, 16, 33};
      terms.send_depth = kDepths[random().below(kDepths.size())];
      terms.receive_depth = kDepths[random().below(kDepths.size())];
      terms.send_sge = static_cast<std::uint32_t>(random().between(1, 5));
      terms.receive_sge = static_cast<std::uint32_t>(random().between(1, 5));
      terms.inline_size = static_cast<std::uint32_t>(random().below(3) * 100);
      terms.signal_all = random().below(6) == 0;
    } else {
      terms = side->terms_;
    }
    agree_retries(terms, lossy);
    terms.max_rd_atomic = static_cast<std::uint8_t>(random().between(1, 8));
    terms.receive_size = static_cast<std::uint32_t>(random().between(1, 24 << 10));
    terms.lazy = random().below(3) == 0;
    terms.unsignaled_ppm = static_cast<std::uint32_t>(random().below(4) * 250'000);
    terms.access = kAllAccess;
    if (random().below(4) == 0) {
      constexpr std::array kRights = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
                                      IBV_ACCESS_REMOTE_ATOMIC};
      terms.access &= ~static_cast<std::uint32_t>(kRights[random().below(kRights.size())]);
    }
    side->agree_receives(terms);
    side->terms_ = terms;
    side->mtu_ = mtu;
    // Often so near the end of the PSNs that they wrap.
    side->sq_psn_ = static_cast<std::uint32_t>(
        random().below(2) == 0 ? kPsnMask - random().below(200) : random().below(kPsnMask + 1));
    side->epoch_limit_ = static_cast<std::uint32_t>(random().between(40, 400));
  }
  for (Side* side : connection_.sides) side->agree_patience();
}

void Side::agree_retries(Terms& terms, bool lossy) {
  terms.prompt = random().below(2) == 0;
  terms.rnr_retry = 7;
  if (terms.prompt && random().below(2) == 0) {
    terms.rnr_retry = static_cast<std::uint8_t>(random().below(7));
  }
  terms.min_rnr_timer = static_cast<std::uint8_t>(random().between(1, 12));
  terms.timeout = static_cast<std::uint8_t>(random().between(5, 13));
  terms.retry_count = 7;
  if (!lossy) {
    terms.retry_count = static_cast<std::uint8_t>(random().between(1, 7));
    if (random().below(8) == 0) terms.timeout = 0;
  } else if (!world_.plan().gentle) {
    terms.retry_count = static_cast<std::uint8_t>(random().between(2, 7));
  }
}

void Side::create() {
  if (peer_->state_ == State::kDown) agree();
  next_number_ = 1;
  received_ = 0;
  next_psn_ = sq_psn_;
  last_success_ = 0;
  never_from_ = std::numeric_limits<std::uint64_t>::max();
  doomed_ = failed_ = receive_failed_ = bad_receive_ = starving_peer_ = starves_ = false;
  expected_error_ = IBV_WC_SUCCESS;
  misdeed_ = Misdeed::kNone;
  unsignaled_ = epoch_operations_ = 0;
  receives_at_ = told_at_ = {};
  draining_send_queue_ = false;
  notifies_.clear();
  if (!reuse_) {
    // Not before: the process may have begun anew, with fewer queues, since the two agreed.
    terms_.send_cq = random().below(process_.cq_count());
    terms_.receive_cq = random().below(process_.cq_count());
    if (process_.notice(terms_.send_cq) == Notice::kSolicited) terms_.send_cq = 0;
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = process_.cq(terms_.send_cq);
    init.recv_cq = process_.cq(terms_.receive_cq);
    init.cap = {.max_send_wr = terms_.send_depth,
                .max_recv_wr = terms_.receive_depth,
                .max_send_sge = terms_.send_sge,
                .max_recv_sge = terms_.receive_sge,
                .max_inline_data = terms_.inline_size};
    init.sq_sig_all = terms_.signal_all ? 1 : 0;
    if (terms_.shared) init.srq = shared().queue();
    qp_ = ibv_create_qp(process_.pd(), &init);
    if (qp_ == nullptr) fail("ibv_create_qp failed: " + std::string(std::strerror(errno)));
    const std::uint32_t receives = terms_.shared ? 0 : terms_.receive_depth;
    if (init.cap.max_send_wr < terms_.send_depth || init.cap.max_recv_wr < receives) {
      fail("ibv_create_qp granted less than was asked for");
    }
    qp_number_ = qp_->qp_num;
    process_.enter(qp_number_, *this);
    if (terms_.shared) shared().attach(*this);
    check_state(IBV_QPS_RESET);
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp_, &wr, &bad) != EINVAL) fail("a receive was taken in RESET");
  }
  reuse_ = false;
  process_.forget_events(qp_number_);
  name_ = fmt::format("{}/{}.{}", process_.name(), connection_.epoch, which_);
  world_.trace().mix_all(world_.now().time_since_epoch().count(), qp_number_);
  make_zone();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = terms_.access;
  const int wrong = ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (wrong != EINVAL) fail("RESET to INIT went without a P_Key index");
  const int status = ibv_modify_qp(
      qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (status != 0) fail(fmt::format("RESET to INIT: {}", std::strerror(status)));
  say("created: qp {:#08x}, psn {}, mtu {}, depths {} {}, retry {} rnr {} timeout {}, rd {}{}{}",
      qp_number_, sq_psn_, mtu_, terms_.send_depth, terms_.receive_depth, terms_.retry_count,
      terms_.rnr_retry, terms_.timeout, terms_.max_rd_atomic, terms_.lazy ? ", lazy" : "",
      terms_.prompt ? ", prompt" : "");
  state_ = State::kInit;
  if (random().below(4) == 0) try_wrong_things_in_init();
}

void Side::try_wrong_things_in_init() {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp_, &wr, &bad) != EINVAL || bad != &wr) fail("a send was taken in INIT");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = sq_psn_;
  const int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT |
                   IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT;
  if (ibv_modify_qp(qp_, &attr, mask) != EINVAL) fail("INIT went to RTS");
  check_state(IBV_QPS_INIT);
  if (terms_.shared) return refuse_own_receive();
  // Nothing takes receives here, so the queue can be filled.
  while (receives_.size() < terms_.receive_depth) post_receive();
  std::vector<ibv_sge> pieces(terms_.receive_sge + 40);
  ibv_recv_wr receive{};
  receive.sg_list = pieces.data();
  receive.num_sge = static_cast<int>(pieces.size());
  ibv_recv_wr* bad_receive = nullptr;
  if (ibv_post_recv(qp_, &receive, &bad_receive) == 0) fail("a receive with 40 pieces was taken");
}

void Side::make_zone() {
  const auto size = static_cast<std::uint32_t>(random().between(2, 40) * 1024 +
                                               random().below(2) * 4 + random().below(2));
  const auto range = process_.arena().take(size, 64, random());
  if (!range) fail("the arena has no room for a zone");
  zone_buffer_ = std::make_shared<Buffer>(process_.arena(), *range);
  zone_ = std::make_unique<Zone>(process_.arena(), *range);
  void* const at = process_.arena().at(range->offset);
  zone_address_ = process_.arena().address(range->offset);
  if (random().below(3) == 0) {
    zone_address_ = (random().below(1U << 20) << 12) | (zone_address_ & 4095);
    zone_mr_ = ibv_reg_mr_iova(process_.pd(), at, size, zone_address_, kZoneAccess);
  } else {
    zone_mr_ = ibv_reg_mr(process_.pd(), at, size, kZoneAccess);
  }
  if (zone_mr_ == nullptr) fail("ibv_reg_mr failed: " + std::string(std::strerror(errno)));
  make_windows();
}

void Side::drop_zone() {
  if (zone_mr_ == nullptr) return;
  drop_windows();
  stale_key_ = zone_mr_->rkey;
  stale_address_ = zone_address_;
  if (const int status = ibv_dereg_mr(zone_mr_); status != 0) {
    fail(fmt::format("ibv_dereg_mr: {}", std::strerror(status)));
  }
  zone_mr_ = nullptr;
  zone_.reset();
  zone_buffer_.reset();
}

void Side::connect() {
  to_rtr();
  world_.checker().open(
      {.local = process_.address(),
       .local_qp = qp_number_,
       .peer = peer_->process_.address(),
       .peer_qp = peer_->qp_number_,
       .rq_psn = peer_->sq_psn_,
       .sq_psn = sq_psn_,
       .mtu = mtu_,
       .max_rd_atomic = std::min(terms_.max_rd_atomic, peer_->terms_.max_rd_atomic),
       .rnr_retry = terms_.rnr_retry,
       .shares = terms_.shared.has_value()});
  if (!terms_.lazy && !terms_.shared) {
    while (receives_.size() < terms_.receive_depth) post_receive();
  }
  to_rts();
  state_ = State::kReady;
}

void Side::to_rtr() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = to_enum(mtu_);
  attr.dest_qp_num = peer_->qp_number_;
  attr.rq_psn = peer_->sq_psn_;
  // The peer asks for no more than its own limit, which may be below ours.
  attr.max_dest_rd_atomic = std::min(terms_.max_rd_atomic, peer_->terms_.max_rd_atomic);
  attr.min_rnr_timer = terms_.min_rnr_timer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 64;
  const wire::Address peer = peer_->process_.address();
  std::memcpy(attr.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  const int status =
      ibv_modify_qp(qp_, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (status != 0) fail(fmt::format("INIT to RTR: {}", std::strerror(status)));
}

void Side::to_rts() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = sq_psn_;
  attr.timeout = terms_.timeout;
  attr.retry_cnt = terms_.retry_count;
  attr.rnr_retry = terms_.rnr_retry;
  attr.max_rd_atomic = std::min(terms_.max_rd_atomic, peer_->terms_.max_rd_atomic);
  const int status =
      ibv_modify_qp(qp_, &attr,
                    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                        IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (status != 0) fail(fmt::format("RTR to RTS: {}", std::strerror(status)));
}

void Side::check_state(ibv_qp_state expected) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int status = ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init);
  if (status != 0) fail(fmt::format("ibv_query_qp: {}", std::strerror(status)));
  if (attr.qp_state != expected) {
    fail(fmt::format("the queue pair's state is {}, must be {}", static_cast<int>(attr.qp_state),
                     static_cast<int>(expected)));
  }
}

// Ending.

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
  if (const int status = ibv_modify_qp(qp_, &attr, IBV_QP_STATE); status != 0) {
    fail(fmt::format("to ERR: {}", std::strerror(status)));
  }
  check_state(IBV_QPS_ERR);
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
      !world_.network().quiet(process_.address(), peer_->process_.address())) {
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
  if (const auto wrong = zone_->check(peer_->never_from_)) fail(*wrong);
  zone_->adopt();
}

void Side::tear_down() {
  world_.checker().close(process_.address(), qp_number_);
  if (qp_ != nullptr) {
    if (random().below(2) == 0 && !world_.winding_up()) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_RESET;
      if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE) != 0) fail("to RESET failed");
      check_state(IBV_QPS_RESET);
      reuse_ = true;
    } else {
      destroy();
    }
  }
  receives_.clear();  // those of a queue pair in INIT never complete
  drop_zone();
  state_ = State::kDown;
}

void Side::destroy() {
  if (qp_ == nullptr) return;
  if (const int status = ibv_destroy_qp(qp_); status != 0) {
    fail(fmt::format("ibv_destroy_qp: {}", std::strerror(status)));
  }
  process_.leave(qp_number_);
  if (terms_.shared) shared().detach(*this);
  qp_ = nullptr;
}

void Side::crash() {
  if (state_ == State::kReady || state_ == State::kDraining || state_ == State::kInit) {
    connection_.silent = true;
    peer_->lose_peer();
    state_ = State::kDrained;
  }
  world_.checker().close(process_.address(), qp_number_);
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
