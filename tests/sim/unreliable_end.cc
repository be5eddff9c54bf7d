// SPDX-License-Identifier: Apache-2.0
#include "sim/unreliable_end.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/headers.h"

namespace verbena::sim {
namespace {

constexpr std::uint32_t kSendDepth = 4;
constexpr std::uint32_t kZoneSize = 24 << 10;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
constexpr std::uint32_t kWrongKey = 0x00000BAD;
constexpr std::uint32_t kEpochMessages = 60;

std::uint32_t add(std::uint32_t psn, std::uint32_t count) { return (psn + count) & wire::kMask24; }

}  // namespace

UnreliableEnd::UnreliableEnd(World& world, Process& process, UnreliablePair& pair, int which)
    : world_(world),
      process_(process),
      pair_(pair),
      name_(fmt::format("{}/uc.{}", process.name(), which)) {}

void UnreliableEnd::fail(const std::string& why) {
  world_.fail(fmt::format("{} qp {:#08x}: {}; {} sends, {} receives, {} completions to come", name_,
                          qp_number_, why, sends_.size(), receives_.size(), expected_.size()));
  std::unreachable();
}

bool UnreliableEnd::step() {
  switch (state_) {
    case State::kDown:
      if (world_.winding_up() || !process_.up() || !peer_->process_.up()) return false;
      if (peer_->state_ == State::kReady || (pair_.ending && !peer_->down())) return false;
      if (peer_->down()) {
        const bool quiet = world_.host().quiet(process_.address(), peer_->process_.address());
        if (world_.now() < pair_.calm_at || !quiet) return false;
        begin();
      }
      create();
      return true;
    case State::kInit:
      if (pair_.ending || (peer_->down() && world_.winding_up())) {
        end();
      } else if (peer_->down()) {
        return false;
      } else {
        connect();
      }
      return true;
    case State::kReady:
      if (pair_.ending || may_end()) {
        end();
        return true;
      }
      return traffic();
  }
  return false;
}

// Life.

/// What both ends agree on.
void UnreliableEnd::begin() {
  pair_.ending = false;
  for (UnreliableEnd* end : pair_.ends) end->outgoing_.clear();  // nobody waits for them any more
  constexpr std::array<std::uint32_t, 5> kMtus = {256, 512, 1024, 2048, 4096};
  const std::uint32_t mtu = kMtus[random().below(world_.plan().port_mtu == 1024 ? 3 : 5)];
  for (UnreliableEnd* end : pair_.ends) {
    end->path_mtu_ = mtu;
    end->mtu_ = world_.plan().mtu(mtu);
    end->sq_psn_ =
        static_cast<std::uint32_t>(random().below(2) == 0 ? wire::kMask24 - random().below(100)
                                                          : random().next()) &
        wire::kMask24;
    end->receive_size_ = static_cast<std::uint32_t>(random().between(1, 9 << 10));
  }
}

void UnreliableEnd::modify(ibv_qp_attr& attr, int mask, const char* what) {
  if (const int status = ibv_modify_qp(qp_, &attr, mask | IBV_QP_STATE); status != 0) {
    fail(fmt::format("{}: {}", what, std::strerror(status)));
  }
}

void UnreliableEnd::create() {
  if (!std::exchange(reuse_, false)) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_UC;
    init.send_cq = process_.cq(0);
    init.recv_cq = process_.cq(random().below(process_.cq_count()));
    depth_ = static_cast<std::uint32_t>(random().between(2, 12));
    init.cap = {.max_send_wr = kSendDepth,
                .max_recv_wr = depth_,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64};
    qp_ = ibv_create_qp(process_.pd(), &init);
    if (qp_ == nullptr) fail("ibv_create_qp: " + std::string(std::strerror(errno)));
    qp_number_ = qp_->qp_num;
  }
  const auto range = process_.arena().take(kZoneSize, 64, random());
  if (!range) fail("the arena has no room for a zone");
  zone_ = std::make_shared<Buffer>(process_.arena(), *range);
  zone_mr_ = ibv_reg_mr(process_.pd(), process_.arena().at(range->offset), kZoneSize, kAccess);
  if (zone_mr_ == nullptr) fail("ibv_reg_mr failed");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  modify(attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "to INIT");
  next_psn_ = sq_psn_;
  posted_ = 0;
  state_ = State::kInit;
  world_.trace().line(world_.now(), name_, "qp {:#08x}, psn {}, mtu {}, receives of {}", qp_number_,
                      sq_psn_, mtu_, receive_size_);
}

void UnreliableEnd::connect() {
  constexpr std::array kMtus = {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096};
  while (receives_.size() < depth_) post_receive();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = *std::ranges::find(kMtus, path_mtu_, [](ibv_mtu mtu) { return 128U << mtu; });
  attr.dest_qp_num = peer_->qp_number_;
  attr.rq_psn = peer_->sq_psn_;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 64;
  const wire::Address peer = peer_->process_.address();
  std::memcpy(attr.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  modify(attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, "to RTR");
  expected_psn_ = peer_->sq_psn_;
  accepting_ = true;
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = sq_psn_;
  modify(attr, IBV_QP_SQ_PSN, "to RTS");
  state_ = State::kReady;
}

/// Everything that was posted and is not lost has come, or the epoch has lasted long enough.
bool UnreliableEnd::may_end() const {
  const bool over = world_.winding_up() || posted_ > kEpochMessages;
  if (!over || !peer_->ready() || in_send_error_ || peer_->in_send_error_) return false;
  const auto signaled = [](const UnreliableEnd& end) {
    return std::ranges::any_of(end.sends_, &Send::signaled);
  };
  return !signaled(*this) && !signaled(*peer_) && expected_.empty() && peer_->expected_.empty() &&
         world_.host().quiet(process_.address(), peer_->process_.address());
}

void UnreliableEnd::end() {
  pair_.ending = true;
  if (state_ == State::kReady) {
    accepting_ = false;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    modify(attr, 0, "to ERR");
    process_.poll_all();
    const bool flushed = std::ranges::none_of(sends_, &Send::signaled) && receives_.empty();
    if (!flushed || !expected_.empty()) fail("posted requests were not flushed");
  }
  const Plan& plan = world_.plan();
  pair_.calm_at = world_.now() + 2 * (plan.network.latency + plan.network.jitter) +
                  plan.disturbance.longest_delay + Duration(1'200'000);
  for (const Outgoing& message : outgoing_) {
    const bool lost = !message.arrived && !message.unready && message.fault == Fault::kNone;
    world_.counters().unreliable_lost += lost ? 1 : 0;
  }
  if (random().below(2) == 0 && !world_.winding_up()) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    modify(attr, 0, "to RESET");
    reuse_ = true;
  } else {
    destroy();
  }
  forget();
}

void UnreliableEnd::destroy() {
  if (qp_ != nullptr && ibv_destroy_qp(qp_) != 0) fail("ibv_destroy_qp failed");
  qp_ = nullptr;
  qp_number_ = 0;
  reuse_ = false;
}

void UnreliableEnd::forget() {
  for (const ReceiveWork& work : receives_) process_.arena().settle(work.buffer->range());
  if (zone_mr_ != nullptr && ibv_dereg_mr(zone_mr_) != 0) fail("ibv_dereg_mr failed");
  zone_mr_ = nullptr;
  zone_.reset();
  sends_.clear();
  receives_.clear();
  expected_.clear();
  attempts_.clear();
  current_ = nullptr;
  in_send_error_ = accepting_ = held_ = false;
  state_ = State::kDown;
}

void UnreliableEnd::crash() {
  if (!down()) pair_.ending = true;
  accepting_ = false;
  destroy();
  forget();
}

// Traffic.

bool UnreliableEnd::traffic() {
  bool active = false;
  if (receives_.size() < depth_ && random().below(4) != 0) {
    post_receive();
    active = true;
  }
  if (in_send_error_) {
    if (sends_.empty()) recover();
    return active;
  }
  const bool posts = !world_.winding_up() && posted_ <= kEpochMessages && random().below(20) == 0;
  // What arrives before RTR is lost.
  const bool heard = peer_->ready() || (!peer_->down() && world_.plan().loses());
  if (posts && heard && sends_.size() < kSendDepth) {
    post_send();
    active = true;
  }
  return active;
}

void UnreliableEnd::post_receive() {
  ReceiveWork work;
  work.id = world_.next_id() + 1;
  work.length = receive_size_ + static_cast<std::uint32_t>(random().below(16));
  const auto range = process_.arena().take(work.length, 1, random());
  if (!range) fail("the arena is full");
  work.buffer = std::make_shared<Buffer>(process_.arena(), *range);
  process_.arena().unsettle(*range);
  const auto cut = static_cast<std::uint32_t>(random().between(1, work.length));
  ibv_sge sges[2] = {
      {process_.arena().address(range->offset), cut, process_.lkey()},
      {process_.arena().address(range->offset + cut), work.length - cut, process_.lkey()}};
  ibv_recv_wr wr{};
  wr.wr_id = work.id;
  wr.sg_list = sges;
  wr.num_sge = cut == work.length ? 1 : 2;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(qp_, &wr, &bad) != 0) fail("ibv_post_recv failed");
  ++world_.counters().receives;
  receives_.push_back(std::move(work));
}

std::uint32_t UnreliableEnd::choose_length() {
  switch (random().below(4)) {
    case 0: return static_cast<std::uint32_t>(random().below(200));
    case 1:
      return static_cast<std::uint32_t>(mtu_ * random().between(1, 5) + random().below(3) - 1);
    case 2: return static_cast<std::uint32_t>(random().below(kZoneSize / 4));
    default: return static_cast<std::uint32_t>(random().below(mtu_ + 1));
  }
}

void UnreliableEnd::post_send() {
  constexpr std::array kSome = {Kind::kSend, Kind::kSendImm, Kind::kWrite, Kind::kWriteImm};
  constexpr std::array kOpcodes = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                   IBV_WR_RDMA_WRITE_WITH_IMM};
  Outgoing message;
  message.id = world_.next_id();
  message.kind = kSome[random().below(kSome.size())];
  const bool write = is_write(message.kind);
  std::uint32_t length = std::min(choose_length(), write ? kZoneSize : peer_->receive_size_);
  if (random().below(20) == 0) {
    message.fault = random().below(4) == 0 ? Fault::kLocalKey
                    : write                ? Fault::kRemoteKey
                                           : Fault::kTooLong;
    if (message.fault == Fault::kTooLong) length = peer_->receive_size_ + 20;
    if (message.fault != Fault::kTooLong) length = std::max(length, 1U);
  }
  message.signaled = sends_.size() + 1 >= kSendDepth / 2 || message.fault == Fault::kLocalKey ||
                     random().below(3) != 0;
  message.immediate = static_cast<std::uint32_t>(random().next());
  const auto range = process_.arena().take(std::max(length, 1U), 1, random());
  if (!range) fail("the arena is full");
  Send send{.id = message.id,
            .signaled = message.signaled,
            .fault = message.fault,
            .buffer = std::make_shared<Buffer>(process_.arena(), *range)};
  std::vector<std::byte> bytes(length);
  fill_pattern(bytes, random());
  process_.arena().write(range->offset, bytes);
  message.data = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const Range& zone = peer_->zone_->range();
  message.target = zone.offset + static_cast<std::uint32_t>(random().below(zone.size - length + 1));

  ibv_sge sge{process_.arena().address(range->offset), length, process_.lkey()};
  if (message.fault == Fault::kLocalKey) sge.lkey ^= kWrongKey;
  ibv_send_wr wr{};
  wr.wr_id = message.id;
  wr.sg_list = &sge;
  wr.num_sge = length == 0 ? 0 : 1;
  wr.opcode = kOpcodes[static_cast<std::size_t>(message.kind)];
  wr.imm_data = htonl(message.immediate);
  wr.send_flags = flag_if(message.signaled, IBV_SEND_SIGNALED) |
                  flag_if(random().below(3) == 0, IBV_SEND_SOLICITED);
  wr.wr.rdma.remote_addr = peer_->process_.arena().address(message.target);
  wr.wr.rdma.rkey = peer_->zone_mr_->rkey ^ (message.fault == Fault::kRemoteKey ? kWrongKey : 0);
  message.first_psn = next_psn_;
  message.psn_count = std::max((length + mtu_ - 1) / mtu_, 1U);
  // What fails here uses no PSNs.
  if (message.fault != Fault::kLocalKey) next_psn_ = add(next_psn_, message.psn_count);
  in_send_error_ = message.fault == Fault::kLocalKey;
  world_.trace().mix_all(message.id, message.kind, length);
  world_.trace().line(world_.now(), name_, "send {}: {} {} bytes psn {}{}", message.id,
                      to_string(message.kind), length, message.first_psn,
                      message.fault == Fault::kNone ? "" : " WRONG");
  // Before it leaves: at this process itself it may arrive at once.
  if (!in_send_error_) outgoing_.push_back(std::move(message));
  sends_.push_back(std::move(send));
  ibv_send_wr* bad = nullptr;
  if (const int status = ibv_post_send(qp_, &wr, &bad); status != 0) {
    fail(fmt::format("ibv_post_send: {}", std::strerror(status)));
  }
  ++posted_;
  ++world_.counters().unreliable;
  ++world_.counters().operations;
  world_.posted();
}

/// After a send that failed: SQE, from which the queue pair comes back; receives went on.
void UnreliableEnd::recover() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init) != 0 || attr.qp_state != IBV_QPS_SQE) {
    fail(fmt::format("state {} after a failed send", static_cast<int>(attr.qp_state)));
  }
  attr.qp_state = IBV_QPS_RTS;
  modify(attr, 0, "SQE to RTS");
  in_send_error_ = false;
}

}  // namespace verbena::sim
