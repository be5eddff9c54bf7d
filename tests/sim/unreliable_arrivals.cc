// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/unreliable_end.h"
#include "wire/headers.h"

// What comes of an unreliable connection's packets, and of its requests.

namespace verbena::sim {
namespace {

std::uint32_t add(std::uint32_t psn, std::uint32_t count) { return (psn + count) & wire::kMask24; }

wire::Place place_of(std::uint32_t index, std::uint32_t count) {
  if (count == 1) return wire::Place::kOnly;
  if (index == 0) return wire::Place::kFirst;
  return index + 1 == count ? wire::Place::kLast : wire::Place::kMiddle;
}

}  // namespace

// What comes in.

/// The message of ours that has the PSN.
UnreliableEnd::Outgoing* UnreliableEnd::find(std::uint32_t psn) {
  for (Outgoing& message : outgoing_) {
    if (((psn - message.first_psn) & wire::kMask24) < message.psn_count) return &message;
  }
  return nullptr;
}

/// What the peer's NIC sent is what was posted.
void UnreliableEnd::check_packet(const wire::Packet& packet, const Outgoing& message,
                                 std::uint32_t index) {
  const wire::OpcodeInfo& info = packet.info();
  const bool write = is_write(message.kind);
  const bool last = index + 1 == message.psn_count;
  const std::size_t offset = std::size_t{index} * mtu_;
  const std::size_t size = std::min<std::size_t>(mtu_, message.data->size() - offset);
  const auto at = message.data->begin() + static_cast<std::ptrdiff_t>(offset);
  const bool right = info.place == place_of(index, message.psn_count) &&
                     info.operation == (write ? wire::Operation::kWrite : wire::Operation::kSend) &&
                     info.has_immediate == (last && has_immediate(message.kind)) &&
                     (!info.has_immediate || packet.immediate.value == message.immediate) &&
                     packet.payload.size() == size &&
                     std::equal(packet.payload.begin(), packet.payload.end(), at);
  if (!right) {
    world_.scheduler().note_failure(
        fmt::format("{}: PSN {} is not what was posted as {}", name_, packet.bth.psn, message.id));
  }
}

void UnreliableEnd::arrived(const wire::Packet& packet, const wire::Segment& segment) {
  if (!accepting_ || segment.path.source != peer_->process_.address()) return;
  if ((packet.bth.pkey & 0x7FFF) != 0x7FFF) return;
  const std::uint32_t psn = packet.bth.psn;
  Outgoing* const message = peer_->find(psn);
  if (message == nullptr) {
    return world_.scheduler().note_failure(
        fmt::format("{}: PSN {} came, which nobody posted", name_, psn));
  }
  const std::uint32_t index = (psn - message->first_psn) & wire::kMask24;
  check_packet(packet, *message, index);
  // A gap costs the message in which it is.
  if (index == 0) {
    current_ = message;
  } else if (psn != expected_psn_) {
    current_ = nullptr;
  }
  expected_psn_ = add(psn, 1);
  if (current_ == message) follow(packet, *message, index);
}

/// The next packet of the message that is coming in.
void UnreliableEnd::follow(const wire::Packet& packet, Outgoing& message, std::uint32_t index) {
  const bool write = is_write(message.kind);
  const bool last = index + 1 == message.psn_count;
  const bool takes = write ? last && message.kind == Kind::kWriteImm : index == 0;
  const auto size = static_cast<std::uint32_t>(packet.payload.size());
  if (takes && !has_receive()) {
    message.unready = true;
    ++world_.counters().unreliable_unready;
    current_ = nullptr;
    return;
  }
  if (takes) held_ = true;
  bool dropped = write && message.fault == Fault::kRemoteKey;
  if (!write) {
    if (index == 0) attempts_.push_back({.data = message.data});
    Attempt& attempt = attempts_.back();
    dropped = attempt.size + size > receives_[expected_.size()].length;
    if (!dropped) attempt.size += size;
  } else if (!dropped) {
    process_.arena().expect(message.target + index * mtu_, packet.payload);
  }
  if (dropped || last) current_ = nullptr;
  if (dropped || !last) return;
  ++world_.counters().unreliable_arrived;
  if (message.arrived) ++world_.counters().unreliable_again;
  message.arrived = true;
  if (message.kind == Kind::kWrite) return;
  expected_.push_back({.message = &message, .attempts = std::exchange(attempts_, {})});
  held_ = false;
}

void UnreliableEnd::complete(const ibv_wc& completion) {
  world_.trace().line(world_.now(), name_, "completion {}: {}", completion.wr_id,
                      status_name(completion.status));
  if ((completion.wr_id & 1) != 0) return complete_receive(completion);
  complete_send(completion);
}

/// Sends complete in order, whatever becomes of them.
void UnreliableEnd::complete_send(const ibv_wc& completion) {
  const bool ended = !accepting_;
  while (!sends_.empty() && sends_.front().id != completion.wr_id) {
    if (sends_.front().signaled) fail("sends complete out of order");
    sends_.pop_front();
  }
  if (sends_.empty()) fail(fmt::format("send {} completes and is not posted", completion.wr_id));
  const Send send = std::move(sends_.front());
  sends_.pop_front();
  if (ended && completion.status == IBV_WC_WR_FLUSH_ERR) return;
  const auto expected = send.fault == Fault::kLocalKey ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
  if (completion.status != expected || !send.signaled) {
    fail(fmt::format("send {} ends with {}", send.id, status_name(completion.status)));
  }
}

void UnreliableEnd::complete_receive(const ibv_wc& completion) {
  if (receives_.empty() || receives_.front().id != completion.wr_id) {
    fail(fmt::format("receive {} completes out of order", completion.wr_id));
  }
  const ReceiveWork work = std::move(receives_.front());
  receives_.pop_front();
  if (completion.status == IBV_WC_WR_FLUSH_ERR && !accepting_ && expected_.empty()) {
    settle(work, 0, std::exchange(attempts_, {}));
    return;
  }
  if (completion.status != IBV_WC_SUCCESS || expected_.empty()) {
    fail(fmt::format("receive {} ends with {}", work.id, status_name(completion.status)));
  }
  const Expected expected = std::move(expected_.front());
  expected_.pop_front();
  const Outgoing& message = *expected.message;
  const bool write = is_write(message.kind);
  const bool immediate = has_immediate(message.kind);
  if (completion.opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) ||
      completion.byte_len != message.data->size() ||
      ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) != immediate ||
      (immediate && ntohl(completion.imm_data) != message.immediate)) {
    fail(fmt::format("receive {} says {} bytes, must be {} with {}", work.id, completion.byte_len,
                     to_string(message.kind), message.data->size()));
  }
  std::uint32_t from = 0;
  if (!write) {
    process_.arena().expect(work.buffer->range().offset, *message.data);
    from = completion.byte_len;
  }
  settle(work, from, expected.attempts);
}

/// The message is there, and behind it what was there before or what dropped messages left.
void UnreliableEnd::settle(const ReceiveWork& work, std::uint32_t from,
                           const std::vector<Attempt>& attempts) {
  Arena& arena = process_.arena();
  const Range& range = work.buffer->range();
  const ConstBytes got = arena.bytes(range);
  const ConstBytes shadow = arena.shadow(range);
  for (std::uint32_t i = 0; i < range.size; ++i) {
    if (got[i] == shadow[i]) continue;
    const bool left = i >= from && std::ranges::any_of(attempts, [&](const Attempt& attempt) {
                        return i < attempt.size && (*attempt.data)[i] == got[i];
                      });
    if (!left) fail(fmt::format("receive {}: byte {} of {} is wrong", work.id, i, range.size));
  }
  arena.adopt(range);
  arena.settle(range);
}

}  // namespace verbena::sim
