// SPDX-License-Identifier: Apache-2.0
#include "sim/datagram_end.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "wire/headers.h"

namespace verbena::sim {
namespace {

constexpr std::uint32_t kGrhSize = wire::Grh::kSize;
constexpr std::uint32_t kOwnQkey = 0x8000'0000;
constexpr std::uint32_t kSendDepth = 8;

}  // namespace

DatagramEnd::DatagramEnd(World& world, Process& process, std::size_t index)
    : world_(world), process_(process), name_(fmt::format("{}/ud{}", process.name(), index)) {}

void DatagramEnd::open() {
  Random& random = world_.random();
  qp_ = make_queue_pair();
  if (qp_ == nullptr) return world_.fail(name_ + ": ibv_create_qp_ex failed");
  qp_number_ = qp_->qp_num;
  qkey_ = static_cast<std::uint32_t>(random.below(kOwnQkey));
  prepare_groups();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = qkey_;
  int status =
      ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  attr.qp_state = IBV_QPS_RTR;
  if (status == 0) status = ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = static_cast<std::uint32_t>(random.below(1U << 24));
  if (status == 0) status = ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  if (status != 0) world_.fail(fmt::format("{}: to RTS: {}", name_, std::strerror(status)));
  world_.trace().line(world_.now(), name_, "qp {:#08x} qkey {:#x}", qp_number_, qkey_);
}

ibv_qp* DatagramEnd::make_queue_pair() {
  Random& random = world_.random();
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_UD;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = process_.pd();
  init.send_cq = process_.cq(0);
  init.recv_cq = process_.cq(random.below(process_.cq_count()));
  depth_ = static_cast<std::uint32_t>(random.between(2, 20));
  init.cap = {.max_send_wr = kSendDepth,
              .max_recv_wr = depth_,
              .max_send_sge = 2,
              .max_recv_sge = 3,
              .max_inline_data = 64};
  const std::uint32_t queues = world_.plan().shared_queues;
  if (queues != 0 && random.below(2) == 0) {
    shared_ = &process_.shared_receives(random.below(queues));
    shared_->attach(*this);
    init.srq = shared_->queue();
  }
  if (world_.plan().groups != 0 && random.below(2) == 0) {
    blocks_own_ = true;
    init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  }
  return ibv_create_qp_ex(process_.context(), &init);
}

bool DatagramEnd::idle() const {
  return must_hold() == 0 && std::ranges::none_of(sends_, &Send::signaled);
}

std::size_t DatagramEnd::must_hold() const {
  return static_cast<std::size_t>(std::ranges::count(expected_, false, &Expected::perhaps));
}

void DatagramEnd::close(bool crashed) {
  if (!crashed && !idle()) world_.fail(name_ + ": closes and is not idle");
  for (const ReceiveWork& work : receives_) process_.arena().settle(work.buffer->range());
  leave_groups();
  if (qp_ != nullptr && ibv_destroy_qp(qp_) != 0) world_.fail(name_ + ": ibv_destroy_qp failed");
  if (shared_ != nullptr) shared_->detach(*this);
  shared_ = nullptr;
  for (const auto& [address, handle] : handles_) {
    if (ibv_destroy_ah(handle) != 0) world_.fail(name_ + ": ibv_destroy_ah failed");
  }
  handles_.clear();
  qp_ = nullptr;
  qp_number_ = 0;
  sends_.clear();
  receives_.clear();
  expected_.clear();
  in_send_error_ = blocks_own_ = false;
}

bool DatagramEnd::step() {
  if (qp_ == nullptr) return false;
  tend_groups();
  Random& random = world_.random();
  bool active = shared_ == nullptr && post_receives();
  if (in_send_error_) {
    if (sends_.empty()) recover();
    return active;
  }
  while (!world_.winding_up() && sends_.size() < kSendDepth && random.below(24) == 0) {
    post_send();
    active = true;
    if (in_send_error_) break;
  }
  return active;
}

bool DatagramEnd::post_receives() {
  Random& random = world_.random();
  if (receives_.size() >= depth_ || random.below(3) == 0) return false;
  const std::uint64_t count = random.between(1, depth_ - receives_.size());
  for (std::uint64_t i = 0; i < count; ++i) post_receive();
  return true;
}

void DatagramEnd::post_receive() {
  Random& random = world_.random();
  ReceiveWork work;
  work.id = world_.next_id() + 1;
  work.length = kGrhSize + (random.below(4) == 0 ? static_cast<std::uint32_t>(random.below(600))
                                                 : world_.plan().port_mtu);
  const auto range = process_.arena().take(work.length, 1, random);
  if (!range) return world_.fail("the arena is full");
  work.buffer = std::make_shared<Buffer>(process_.arena(), *range);
  process_.arena().unsettle(*range);
  // Sometimes the GRH has a piece of its own, as many programs do it.
  const std::uint32_t cut =
      random.below(2) == 0 ? kGrhSize : static_cast<std::uint32_t>(random.between(1, work.length));
  ibv_sge sges[2] = {
      {process_.arena().address(range->offset), cut, process_.lkey()},
      {process_.arena().address(range->offset + cut), work.length - cut, process_.lkey()}};
  ibv_recv_wr wr{};
  wr.wr_id = work.id;
  wr.sg_list = sges;
  wr.num_sge = cut == work.length ? 1 : 2;
  ibv_recv_wr* bad = nullptr;
  if (const int status = ibv_post_recv(qp_, &wr, &bad); status != 0) {
    return world_.fail(fmt::format("{}: ibv_post_recv: {}", name_, std::strerror(status)));
  }
  ++world_.counters().receives;
  receives_.push_back(std::move(work));
}

ibv_ah* DatagramEnd::handle_to(const wire::Address& address) {
  ibv_ah*& handle = handles_[address];
  if (handle != nullptr) return handle;
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.hop_limit = 64;
  std::memcpy(attr.grh.dgid.raw, address.gid.data(), address.gid.size());
  handle = ibv_create_ah(process_.pd(), &attr);
  if (handle == nullptr) world_.fail(name_ + ": ibv_create_ah failed");
  return handle;
}

DatagramEnd::Target DatagramEnd::choose_target() {
  if (world_.plan().groups != 0 && world_.random().below(2) == 0) return choose_group();
  const Process& process = world_.process(world_.random().below(world_.plan().processes));
  const auto ends = process.datagram_ends();
  const bool there = !ends.empty() && process.up();
  const DatagramEnd& end = there ? *ends[world_.random().below(ends.size())] : *this;
  return {.address = end.process_.address(), .number = end.qp_number_, .qkey = end.qkey_};
}

void DatagramEnd::post_send() {
  Random& random = world_.random();
  const Target target = choose_target();
  Send send;
  send.id = world_.next_id();
  send.signaled = sends_.size() + 1 >= kSendDepth / 2 || random.below(3) != 0;
  std::uint32_t length = static_cast<std::uint32_t>(
      random.below(2) == 0 ? random.below(200) : random.below(world_.plan().port_mtu + 1));
  if (random.below(10) == 0) length = world_.plan().port_mtu;
  if (random.below(150) == 0) {
    send.too_long = true;
    length = world_.plan().port_mtu + 1;
    send.signaled = true;
  }
  const auto range = process_.arena().take(std::max(length, 1U), 1, random);
  if (!range) return world_.fail("the arena is full");
  send.buffers.push_back(std::make_shared<Buffer>(process_.arena(), *range));
  std::vector<std::byte> payload(length);
  fill_pattern(payload, random);
  process_.arena().write(range->offset, payload);

  ibv_sge sge{process_.arena().address(range->offset), length, process_.lkey()};
  ibv_send_wr wr{};
  wr.wr_id = send.id;
  wr.sg_list = &sge;
  wr.num_sge = length == 0 ? 0 : 1;
  const bool immediate = random.below(3) == 0;
  wr.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  wr.imm_data = htonl(static_cast<std::uint32_t>(random.next()));
  const bool inlined = length <= 64 && random.below(2) == 0;
  wr.send_flags = flag_if(send.signaled, IBV_SEND_SIGNALED) |
                  flag_if(random.below(3) == 0, IBV_SEND_SOLICITED) |
                  flag_if(inlined, IBV_SEND_INLINE);
  wr.wr.ud.ah = handle_to(target.address);
  wr.wr.ud.remote_qpn = target.number;
  wr.wr.ud.remote_qkey = target.qkey;
  switch (random.below(16)) {
    case 0: wr.wr.ud.remote_qkey ^= 1; break;
    case 1: wr.wr.ud.remote_qkey |= kOwnQkey; break;  // our own is sent, right only by chance
    case 2: wr.wr.ud.remote_qpn ^= 0x1F00; break;
    default: break;
  }
  ibv_send_wr* bad = nullptr;
  if (const int status = ibv_post_send(qp_, &wr, &bad); status != 0) {
    return world_.fail(fmt::format("{}: ibv_post_send: {}", name_, std::strerror(status)));
  }
  world_.trace().mix_all(send.id, length);
  world_.trace().line(world_.now(), name_, "send {} to {:#08x}: {} bytes", send.id,
                      wr.wr.ud.remote_qpn, length);
  if (send.too_long) in_send_error_ = true;
  if (inlined) {
    fill_pattern(payload, random);
    process_.arena().write(range->offset, payload);
  }
  sends_.push_back(std::move(send));
  ++world_.counters().datagrams;
  if (target.number == wire::kMulticastQp) ++world_.counters().multicasts;
  ++world_.counters().operations;
  world_.posted();
}

/// After a send that failed: SQE, from which the queue pair comes back.
void DatagramEnd::recover() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init) != 0 || attr.qp_state != IBV_QPS_SQE) {
    return world_.fail(fmt::format("{}: state {} after a failed send, must be SQE", name_,
                                   static_cast<int>(attr.qp_state)));
  }
  attr.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE) != 0) return world_.fail(name_ + ": SQE to RTS");
  in_send_error_ = false;
}

void DatagramEnd::arrived(const wire::Packet& packet, const wire::Segment& segment) {
  if (packet.deth.qkey != qkey_ || (packet.bth.pkey & 0x7FFF) != 0x7FFF) return;
  if (packet.payload.size() > world_.plan().port_mtu) return;
  bool perhaps = false;
  if (!fits(kGrhSize + packet.payload.size(), perhaps)) return;
  expected_.push_back({.payload = {packet.payload.begin(), packet.payload.end()},
                       .path = segment.path,
                       .source_qp = packet.deth.source_qp,
                       .immediate = packet.immediate.value,
                       .with_immediate = packet.info().has_immediate,
                       .perhaps = perhaps});
}

/// Whether there is a receive for a datagram that arrives now; without one it is dropped.
bool DatagramEnd::fits(std::size_t size, bool& perhaps) const {
  if (shared_ != nullptr) {
    const SharedReceives::Fit fit = shared_->fits(size);
    perhaps = fit == SharedReceives::Fit::kMaybe;
    return fit != SharedReceives::Fit::kNo;
  }
  return expected_.size() < receives_.size() && size <= receives_[expected_.size()].length;
}

void DatagramEnd::complete(const ibv_wc& completion) {
  const bool success = completion.status == IBV_WC_SUCCESS;
  world_.trace().line(world_.now(), name_, "completion {}: {}", completion.wr_id,
                      status_name(completion.status));
  if ((completion.wr_id & 1) == 0) {
    while (!sends_.empty() && sends_.front().id != completion.wr_id) {
      if (sends_.front().signaled) return world_.fail(name_ + ": sends complete out of order");
      sends_.pop_front();
    }
    if (sends_.empty()) return world_.fail(name_ + ": a send completes that is not posted");
    const Send send = std::move(sends_.front());
    sends_.pop_front();
    const auto expected = send.too_long ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
    if (completion.status != expected || (!send.signaled && success)) {
      return world_.fail(
          fmt::format("{}: send {} ends with {}", name_, send.id, status_name(completion.status)));
    }
    return;
  }
  if (!success) {
    return world_.fail(fmt::format("{}: receive {} ends with {}", name_, completion.wr_id,
                                   status_name(completion.status)));
  }
  const ReceiveWork work = take_receive(completion.wr_id);
  const auto expected = take_expected(completion, work);
  if (!expected) {
    return world_.fail(
        fmt::format("{}: receive {} says {} bytes from {:#x}, and no such datagram "
                    "must have come",
                    name_, work.id, completion.byte_len, completion.src_qp));
  }
  check_content(*expected, work);
}

ReceiveWork DatagramEnd::take_receive(std::uint64_t id) {
  if (shared_ != nullptr) return shared_->take(id, *this);
  if (receives_.empty() || receives_.front().id != id) {
    world_.fail(fmt::format("{}: receive {} completes out of order", name_, id));
  }
  ReceiveWork work = std::move(receives_.front());
  receives_.pop_front();
  return work;
}

bool DatagramEnd::matches(const Expected& expected, const ibv_wc& completion,
                          const ReceiveWork& work) const {
  const bool immediate = (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (completion.opcode != IBV_WC_RECV || completion.src_qp != expected.source_qp ||
      completion.byte_len != kGrhSize + expected.payload.size() ||
      (completion.wc_flags & IBV_WC_GRH) == 0 || immediate != expected.with_immediate ||
      (immediate && ntohl(completion.imm_data) != expected.immediate)) {
    return false;
  }
  const auto size = static_cast<std::uint32_t>(expected.payload.size());
  const Range range{work.buffer->range().offset + kGrhSize, size};
  return std::ranges::equal(process_.arena().bytes(range), expected.payload);
}

/// The datagram of a completion: the oldest, but for those that may have found no receive.
std::optional<DatagramEnd::Expected> DatagramEnd::take_expected(const ibv_wc& completion,
                                                                const ReceiveWork& work) {
  while (!expected_.empty()) {
    Expected expected = std::move(expected_.front());
    expected_.pop_front();
    if (!matches(expected, completion, work)) {
      if (!expected.perhaps) return std::nullopt;
      continue;
    }
    // It may as well have been a later one that looks the same.
    if (expected.perhaps) {
      for (Expected& later : expected_) {
        later.perhaps = later.perhaps || matches(later, completion, work);
      }
    }
    return expected;
  }
  return std::nullopt;
}

void DatagramEnd::check_content(const Expected& expected, const ReceiveWork& work) {
  Arena& arena = process_.arena();
  const Range& range = work.buffer->range();
  const ConstBytes got = arena.bytes(range);
  const wire::Path& path = expected.path;
  // For IPv4 the addresses end the IP header in bytes 20..39 (A17.4.5.2); the first 20 are
  // undefined.
  const bool header = path.destination.is_ipv4()
                          ? load_be<std::uint32_t>(got.data() + 32) == path.source.ipv4() &&
                                load_be<std::uint32_t>(got.data() + 36) == path.destination.ipv4()
                          : std::memcmp(got.data() + 8, path.source.gid.data(), 16) == 0 &&
                                std::memcmp(got.data() + 24, path.destination.gid.data(), 16) == 0;
  if (!header) return world_.fail(fmt::format("{}: receive {}: wrong GRH", name_, work.id));
  arena.adopt({range.offset, kGrhSize});
  arena.expect(range.offset + kGrhSize, expected.payload);
  const ConstBytes shadow = arena.shadow(range);
  if (std::memcmp(got.data(), shadow.data(), got.size()) != 0) {
    return world_.fail(fmt::format("{}: receive {}: wrong content", name_, work.id));
  }
  arena.settle(range);
}

}  // namespace verbena::sim
