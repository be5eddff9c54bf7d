// SPDX-License-Identifier: Apache-2.0
//
// WRITEs and READs that are one copy between the memory of two processes (nic.md, "Same host"),
// made by the requester: by hand, or for READs of what it has not mapped, by the kernel.
// Such a request takes no PSN, and stands in order all the same: nothing before it is under way,
// and nothing after it begins before it is complete.
#include <algorithm>
#include <array>

#include "engine/direct_memory.h"
#include "engine/message.h"
#include "engine/mutants.h"
#include "engine/queue_pair.h"

namespace verbena::engine {
namespace {

/// Bytes that are copied while the peer cannot take its memory away (nic.md, "Same host").
constexpr std::uint32_t kAtOnce = 256 << 10;
/// The same where nobody waits for it: each call has its price.
constexpr std::uint32_t kFetchedAtOnce = 1 << 20;
/// READs of so many bytes see whole values (nic.md, "Same host"), which the kernel does not
/// promise.
constexpr std::uint64_t kOneMove = 8;
/// What a small request takes of a turn's bytes.
constexpr std::uint32_t kLeastCost = 16 << 10;

std::uint32_t access_of(SendOpcode opcode) {
  return opcode == SendOpcode::kRead ? kRemoteRead : kRemoteWrite;
}

/// Moves as many bytes as are `there` between a peer and the request's own memory, from byte
/// `offset` on.
bool copy(const MemoryLookup& memory, const QueuePair& qp, const SendWqe& wqe, std::uint32_t offset,
          Bytes there) {
  const SendRequest& request = wqe.request;
  if (request.opcode == SendOpcode::kRead)
    return scatter(memory, request.pieces, offset, there, qp.read_pd()).has_value();
  if (request.inline_data)
    return place_from(wqe.inline_bytes.subspan(offset, there.size()), there.data());
  return gather_into(memory, request.pieces, offset, there, qp.config().pd).has_value();
}

}  // namespace

/// What came before a request is executed at the peer when it is acknowledged, and not earlier.
bool Requester::can_be_direct(const SendWqe& wqe) const {
  const bool alone = (oldest_ == cursor_ && !under_way()) || mutant(Mutant::kDirectOvertakes);
  return alone && could_be_direct(wqe);
}

/// Were it alone.
bool Requester::could_be_direct(const SendWqe& wqe) const {
  if (core_.config.direct == nullptr || qp_.path().channel == 0) return false;
  const SendOpcode opcode = wqe.request.opcode;
  return cursor_ == assigned_ && wqe.length != 0 &&
         (opcode == SendOpcode::kWrite || opcode == SendOpcode::kRead) &&
         qp_.config().type == QpType::kRc && !qp_.pace().limits();
}

/// The same before it is tried in a turn: else it goes by packets at once.
bool Requester::may_be_direct(const SendWqe& wqe) const {
  return can_be_direct(wqe) &&
         (direct_bytes_ != 0 ||
          core_.config.direct->offers(qp_.path().channel, access_of(wqe.request.opcode),
                                      std::min(wqe.length, kFetchedAtOnce)));
}

/// It is to be direct, once the READs before it are done.
bool Requester::waits_to_be_direct(const SendWqe& wqe) const {
  const auto reads = [](const SendWqe& any) { return any.request.opcode == SendOpcode::kRead; };
  if (oldest_ == cursor_ || !reads(wqe) || !could_be_direct(wqe) ||
      !reads(qp_.config().send_queue->at(cursor_ - 1)))
    return false;
  const std::uint32_t turn = core_.config.direct->fetch_turn(qp_.path().channel, wqe.length);
  return turn != 0 && turn != fetch_turn_;
}

/// kIdle: done; kMore: the turn is over. Nothing when it has to go by packets, from its beginning:
/// the peer, or this side's way of sending, then finds what is wrong.
std::optional<Fill> Requester::do_directly(SendWqe& wqe, std::uint32_t& budget, Time now) {
  while (direct_bytes_ < wqe.length) {
    if (budget == 0) return Fill::kMore;
    const std::uint32_t size = copy_directly(wqe);
    if (size == 0 || !core_.config.direct->leave(qp_.path().channel, now)) {
      direct_bytes_ = 0;
      return std::nullopt;
    }
    direct_bytes_ += size;
    budget -= std::min(budget, std::max(size, kLeastCost));
  }
  finish_directly(wqe);
  return Fill::kIdle;
}

/// Copies some of a request, and says how much; leave() is to follow if it is any.
std::uint32_t Requester::copy_directly(const SendWqe& wqe) {
  DirectMemory& direct = *core_.config.direct;
  const std::uint16_t channel = qp_.path().channel;
  const SendOpcode opcode = wqe.request.opcode;
  const std::uint32_t left = wqe.length - direct_bytes_;
  std::uint32_t size = std::min(left, kAtOnce);
  DirectMemory::Target target{.channel = channel,
                              .qp_number = qp_.config().number,
                              .destination_qp = qp_.attributes().destination_qp,
                              .key = wqe.request.rkey,
                              .address = wqe.request.remote_address + direct_bytes_,
                              .length = size,
                              .access = access_of(opcode),
                              .goes_on = direct_bytes_ != 0};
  if (opcode == SendOpcode::kRead) fetch_turn_ = direct.fetch_turn(channel, wqe.length);
  if (const Bytes there = direct.reach(target); !there.empty()) {
    if (copy(core_.memory, qp_, wqe, direct_bytes_, there)) return size;
    static_cast<void>(direct.leave(channel, Time{}));
    return 0;
  }
  if (opcode != SendOpcode::kRead) return 0;
  target.length = size = std::min(left, kFetchedAtOnce);
  return fetch_directly(wqe, target) ? size : 0;
}

bool Requester::fetch_directly(const SendWqe& wqe, const DirectMemory::Target& target) const {
  if (wqe.length <= kOneMove) return false;
  std::array<Bytes, DirectMemory::kMostPlaces> places;
  const auto to = places_of(core_.memory, wqe.request.pieces, direct_bytes_, target.length,
                            qp_.read_pd(), places);
  return !to.empty() && core_.config.direct->fetch(target, to);
}

void Requester::count_direct(const SendWqe& wqe) {
  const bool reads = wqe.request.opcode == SendOpcode::kRead;
  qp_.count(reads ? &Counters::bytes_received : &Counters::bytes_sent, wqe.length);
  qp_.count(&Counters::direct_requests);
}

void Requester::finish_directly(SendWqe& wqe) {
  direct_bytes_ = 0;
  count_direct(wqe);
  wqe.first_psn = next_psn_;
  wqe.psn_count = 0;
  ++assigned_;
  ++cursor_;
  if (mutant(Mutant::kDirectOvertakes) && oldest_ + 1 != cursor_) return;
  complete_oldest(Status::kSuccess);
  retire_local();
}

// --- Without a place in the send queue

bool Requester::copy_at_once(const SendWqe& wqe) {
  const bool idle = cursor_ == qp_.config().send_queue->tail() && qp_.state() == QpState::kRts;
  const bool reads = wqe.request.opcode == SendOpcode::kRead;
  return idle && wqe.length <= kAtOnce && can_be_direct(wqe) &&
         !(reads && qp_.attributes().max_rd_atomic == 0) && copy_directly(wqe) != 0;
}

bool Requester::end_at_once(const SendWqe& wqe, Time now) {
  if (!core_.config.direct->leave(qp_.path().channel, now)) return false;
  count_direct(wqe);
  if (!wqe.request.signaled && !qp_.config().signal_all) return true;
  qp_.config().send_queue->release_to(oldest_);  // of unsignaled ones before it
  qp_.complete_send(completion_of(qp_, wqe, Status::kSuccess));
  return true;
}

}  // namespace verbena::engine
