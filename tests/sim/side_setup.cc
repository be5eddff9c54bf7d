// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "sim/side.h"

// The life of a connection's end up to where it is connected.

namespace verbena::sim {
namespace {

constexpr int kZoneAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

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

void Side::create() {
  if (peer_->state_ == State::kDown) agree();
  begin_epoch();
  if (!reuse_) make_queue_pairs();
  reuse_ = false;
  for (const ibv_qp* qp : queue_pairs()) process_.forget_events(qp->qp_num);
  name_ = fmt::format("{}/{}.{}", process_.name(), connection_.epoch, which_);
  world_.trace().mix_all(world_.now().time_since_epoch().count(), qp_number_);
  make_zone();
  to_init();
  say("created: qp {:#08x}{}, psn {}, mtu {}, depths {} {}, retry {} rnr {} timeout {}, rd {}{}{}",
      qp_number_, terms_.extended ? fmt::format(" target {:#08x}", target_number_) : "", sq_psn_,
      mtu_, terms_.send_depth, terms_.receive_depth, terms_.retry_count, terms_.rnr_retry,
      terms_.timeout, terms_.max_rd_atomic, terms_.lazy ? ", lazy" : "",
      terms_.prompt ? ", prompt" : "");
  state_ = State::kInit;
  if (random().below(4) == 0) try_wrong_things_in_init();
}

void Side::begin_epoch() {
  next_number_ = 1;
  received_.clear();
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
}

void Side::make_queue_pairs() {
  // Not before: the process may have begun anew, with fewer queues, since the two agreed.
  terms_.send_cq = random().below(process_.cq_count());
  terms_.receive_cq = random().below(process_.cq_count());
  if (process_.notice(terms_.send_cq) == Notice::kSolicited) terms_.send_cq = 0;
  if (terms_.extended) {
    make_extended_pair();
    ++world_.counters().extended;
  } else {
    make_own_pair();
  }
  qp_number_ = qp_->qp_num;
  target_number_ = target_->qp_num;
  for (ibv_qp* const qp : queue_pairs()) {
    process_.enter(qp->qp_num, *this);
    check_state(qp, IBV_QPS_RESET);
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp, &wr, &bad) != EINVAL) fail("a receive was taken in RESET");
  }
}

/// One for both directions.
void Side::make_own_pair() {
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
  qp_ = target_ = ibv_create_qp(process_.pd(), &init);
  if (qp_ == nullptr) fail("ibv_create_qp failed: " + std::string(std::strerror(errno)));
  const std::uint32_t receives = terms_.shared ? 0 : terms_.receive_depth;
  if (init.cap.max_send_wr < terms_.send_depth || init.cap.max_recv_wr < receives) {
    fail("ibv_create_qp granted less than was asked for");
  }
  if (terms_.shared) shared().attach(*this);
}

std::vector<ibv_qp*> Side::queue_pairs() const {
  if (qp_ == nullptr) return {};
  if (qp_ == target_) return {qp_};
  return {qp_, target_};
}

void Side::to_init() {
  for (ibv_qp* const qp : queue_pairs()) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = terms_.access;
    const int wrong = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (wrong != EINVAL) fail("RESET to INIT went without a P_Key index");
    const int status = ibv_modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (status != 0) fail(fmt::format("RESET to INIT: {}", std::strerror(status)));
  }
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
  check_state(qp_, IBV_QPS_INIT);
  if (terms_.shared || terms_.extended) return refuse_own_receive();
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
  watch();
  if (!terms_.lazy && !terms_.shared && !terms_.extended) {
    while (receives_.size() < terms_.receive_depth) post_receive();
  }
  to_rts();
  state_ = State::kReady;
  if (terms_.extended && random().below(4) == 0) try_wrong_things_extended();
}

/// From now on the wire's checker knows the connection.
void Side::watch() {
  FlowSpec spec{.local = process_.address(),
                .local_qp = qp_number_,
                .peer = peer_->process_.address(),
                .peer_qp = peer_->target_number_,
                .rq_psn = peer_->sq_psn_,
                .sq_psn = sq_psn_,
                .mtu = mtu_,
                .max_rd_atomic = std::min(terms_.max_rd_atomic, peer_->terms_.max_rd_atomic),
                .rnr_retry = terms_.rnr_retry,
                .shares = terms_.shared.has_value() || terms_.extended,
                .extended = terms_.extended};
  world_.checker().open(spec);
  if (target_ == qp_) return;
  spec.local_qp = target_number_;
  spec.peer_qp = peer_->qp_number_;
  world_.checker().open(spec);
}

void Side::to_rtr() {
  constexpr int kMask =
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr int kTargetMask = kMask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = to_enum(path_mtu_);
  attr.rq_psn = peer_->sq_psn_;
  // The peer asks for no more than its own limit, which may be below ours.
  attr.max_dest_rd_atomic = std::min(terms_.max_rd_atomic, peer_->terms_.max_rd_atomic);
  attr.min_rnr_timer = terms_.min_rnr_timer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 64;
  const wire::Address peer = peer_->process_.address();
  std::memcpy(attr.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  for (ibv_qp* const qp : queue_pairs()) {
    attr.dest_qp_num = qp == qp_ ? peer_->target_number_ : peer_->qp_number_;
    const int status = ibv_modify_qp(qp, &attr, qp == target_ ? kTargetMask : kMask);
    if (status != 0) fail(fmt::format("INIT to RTR: {}", std::strerror(status)));
  }
}

void Side::to_rts() {
  constexpr int kMask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
  constexpr int kSenderMask = kMask | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = sq_psn_;
  attr.timeout = terms_.timeout;
  attr.retry_cnt = terms_.retry_count;
  attr.rnr_retry = terms_.rnr_retry;
  attr.max_rd_atomic = std::min(terms_.max_rd_atomic, peer_->terms_.max_rd_atomic);
  for (ibv_qp* const qp : queue_pairs()) {
    const int status = ibv_modify_qp(qp, &attr, qp == qp_ ? kSenderMask : kMask);
    if (status != 0) fail(fmt::format("RTR to RTS: {}", std::strerror(status)));
  }
}

void Side::check_state(ibv_qp* qp, ibv_qp_state expected) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int status = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
  if (status != 0) fail(fmt::format("ibv_query_qp: {}", std::strerror(status)));
  if (attr.qp_state != expected) {
    fail(fmt::format("the queue pair's state is {}, must be {}", static_cast<int>(attr.qp_state),
                     static_cast<int>(expected)));
  }
}

void Side::check_drained() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init) != 0 || attr.sq_draining != 0)
    fail("the send queue has drained, and drains still");
}

}  // namespace verbena::sim
