// SPDX-License-Identifier: Apache-2.0
#include "engine/linger.h"

#include <algorithm>

#include "engine/psn.h"

namespace verbena::engine {

void Linger::add(const QueuePair& qp, Time now) {
  const QpState state = qp.state();
  const bool receiving = state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqd;
  const QpType type = qp.config().type;
  if (!is_reliable(type) || !has_responder(type) || !receiving) return;
  const Entry entry{.type = type,
                    .qp_number = qp.config().number,
                    .destination_qp = qp.attributes().destination_qp,
                    .expected_psn = qp.responder().expected_psn(),
                    .msn = qp.responder().msn(),
                    .path = qp.attributes().path,
                    .until = now + kTime,
                    .acknowledge = qp.responder().has_answers()};
  pending_ = pending_ || entry.acknowledge;
  if (entries_.size() < kCapacity) {
    entries_.push_back(entry);
  } else {
    entries_[next_] = entry;
    next_ = (next_ + 1) % kCapacity;
  }
}

bool Linger::handle(const wire::Packet& packet, const wire::Segment& segment, Time now) {
  const auto operation = packet.info().operation;
  if (operation != wire::Operation::kSend && operation != wire::Operation::kWrite) return false;
  const auto entry = std::ranges::find_if(entries_, [&](const Entry& candidate) {
    return candidate.qp_number == packet.bth.destination_qp && candidate.until > now &&
           packet.info().transport == transport_of(candidate.type) &&
           candidate.path.destination == segment.path.source;
  });
  if (entry == entries_.end() || psn_distance(packet.bth.psn, entry->expected_psn) >= 0)
    return false;
  entry->acknowledge = pending_ = true;
  return true;
}

bool Linger::holds(std::uint32_t qp_number, Time now) const {
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    return entry.qp_number == qp_number && entry.until > now;
  });
}

void Linger::fill(TrainBatch& batch, Counters& counters) {
  pending_ = false;
  for (Entry& entry : entries_) {
    if (!entry.acknowledge) continue;
    if (batch.full()) {
      pending_ = true;
      return;
    }
    entry.acknowledge = false;
    wire::Train& train = batch.next();
    train.path = &entry.path;
    train.head.bth.opcode = opcode_of(entry.type, wire::Opcode::kRcAcknowledge);
    train.head.bth.destination_qp = entry.destination_qp;
    train.head.bth.psn = psn_add(entry.expected_psn, wire::kMask24);
    train.head.aeth = {.msn = entry.msn};
    ++counters.acks_sent;
    ++counters.packets_sent;
  }
}

}  // namespace verbena::engine
