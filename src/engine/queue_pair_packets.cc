// SPDX-License-Identifier: Apache-2.0
//
// The queue pair's second half: the packets that come, and which half of it they are for.
#include "engine/mutants.h"
#include "engine/queue_pair.h"

namespace verbena::engine {
namespace {

constexpr std::uint16_t kPkeyNumber =
    0x7FFF;  ///< low 15 bits of the default partition; we are a full member

bool is_request(wire::Operation operation) {
  using enum wire::Operation;
  return operation == kSend || operation == kWrite || operation == kReadRequest ||
         operation == kCompareSwap || operation == kFetchAdd || operation == kAtomicWrite ||
         operation == kFlush;
}

/// XRC queue pairs go one way: requests are for targets, responses for initiators.
bool takes(QpType type, wire::Operation operation) {
  return type != (is_request(operation) ? QpType::kXrcSend : QpType::kXrcReceive);
}

/// The PSN up to which a packet without an ICRC acknowledges beside what else it is.
std::optional<std::uint32_t> rider_of(const wire::Packet& packet, const wire::Segment& segment) {
  return segment.undamaged ? wire::piggybacked_psn(packet.icrc) : std::nullopt;
}

}  // namespace

bool QueuePair::admissible(const wire::Packet& packet, const wire::Segment& segment) {
  if (packet.info().transport != transport_of(config_.type) ||
      !takes(config_.type, packet.info().operation)) {
    count(&Counters::wrong_transport);
    return false;
  }
  return from_peer(packet, segment);
}

bool QueuePair::from_peer(const wire::Packet& packet, const wire::Segment& segment) {
  Counter Counters::* const counter = objection(packet, segment);
  if (counter != nullptr) count(counter);
  return counter == nullptr;
}

/// What packets of all kinds must be; null when this one is.
Counter Counters::* QueuePair::objection(const wire::Packet& packet,
                                         const wire::Segment& segment) const {
  if (!receives_in(state())) return &Counters::wrong_state;
  if ((packet.bth.pkey & kPkeyNumber) != kPkeyNumber) return &Counters::wrong_pkey;
  // What is sent to a group names no queue pair of it: those that are attached have their copies.
  const bool misled = connected() ? !came_from_peer(segment)
                                  : packet.bth.destination_qp != wire::kMulticastQp &&
                                        segment.path.destination.is_multicast();
  return misled ? &Counters::wrong_source : nullptr;
}

bool QueuePair::looks_into(const wire::Packet& packet) const {
  const bool reliable = config_.type == QpType::kRc || config_.type == QpType::kXrcReceive;
  return !reliable || !is_request(packet.info().operation) ||
         packet.bth.psn == responder_.expected_psn();
}

Bytes QueuePair::place_of(const wire::Packet& packet, const wire::Segment& segment,
                          std::size_t row) const {
  const wire::OpcodeInfo& info = packet.info();
  const bool may_have_one = info.place == wire::Place::kMiddle && config_.type == QpType::kRc &&
                            info.transport == wire::Transport::kRc;
  if (!may_have_one || objection(packet, segment) != nullptr) return {};
  return is_request(info.operation) ? responder_.place_of(packet, row)
                                    : requester_.place_of(packet, row);
}

void QueuePair::handle_placed(const wire::Packet& packet, const wire::Segment& segment,
                              std::uint32_t row, Time now) {
  counters_.packets_received.add(row);  // the engine has counted them already
  if (core_.config.congestion.on) note_mark(segment, row, now);
  if (is_request(packet.info().operation)) {
    responder_.handle_placed(packet, row);
  } else {
    requester_.handle_placed(packet, row, now);
  }
  if (overrun_) enter_error(false);
  note_drained();
}

Use QueuePair::handle(const wire::Packet& packet, const wire::Segment& segment, Time now) {
  ++counters_.packets_received;  // the engine has counted it already
  return admissible(packet, segment) ? handle_admitted(packet, segment, now) : Use::kNone;
}

bool QueuePair::takes_plain(const wire::Packet& packet, const wire::Segment& segment) const {
  return state() == QpState::kRts && config_.type == QpType::kRc && !core_.config.congestion.on &&
         objection(packet, segment) == nullptr;
}

Use QueuePair::handle_plain(const wire::Packet& packet, const wire::Segment& segment, Time now) {
  ++counters_.packets_received;  // the engine has counted it already
  useless_ = false;
  if (const auto psn = rider_of(packet, segment)) requester_.handle_piggyback(*psn, now);
  if (receives_in(state())) responder_.handle_request(packet, now);
  if (overrun_) enter_error(false);
  return useless_ ? Use::kUseless : Use::kUseful;
}

/// What was placed counts for nothing until it is ended. So where what rides in it ends the queue
/// pair, its receive is flushed; elsewhere one that others share stays with them.
bool QueuePair::handle_short(const wire::ShortSend& message, const wire::Segment& segment,
                             Time now) {
  const bool takes = state() == QpState::kRts && config_.type == QpType::kRc &&
                     !core_.config.congestion.on && came_from_peer(segment);
  if (!takes || !responder_.receive_short(message)) [[unlikely]]
    return false;
  ++counters_.packets_received;  // the engine counts it, too
  if (const auto psn = wire::piggybacked_psn(message.piggyback))
    requester_.handle_piggyback(*psn, now);
  if (receives_in(state())) [[likely]]
    responder_.end_short(message);
  if (overrun_) [[unlikely]]
    enter_error(false);
  return true;
}

bool QueuePair::take_like(const wire::Packet& packet, const wire::Segment& segment) {
  const QpState now_in = state();
  const bool plain = responder_.in_row() || ((now_in == QpState::kRts || now_in == QpState::kRtr) &&
                                             connected() && !core_.config.congestion.on);
  return plain && !rider_of(packet, segment) && responder_.take_in_row(packet);
}

std::uint32_t QueuePair::end_like(const wire::Packet& like) {
  const std::uint32_t count = responder_.end_row(like);
  counters_.packets_received.add(count);  // the engine counts them, too
  if (overrun_) enter_error(false);
  return count;
}

Use QueuePair::handle_alike(const wire::Packet& packet, const wire::Segment& segment, Time now) {
  ++counters_.packets_received;  // the engine has counted it already
  // All else that can be wrong with it was looked at in the one before.
  if (!receives_in(state())) {
    count(&Counters::wrong_state);
    return Use::kNone;
  }
  return handle_admitted(packet, segment, now);
}

/// A packet that is for this queue pair and may come in its state.
Use QueuePair::handle_admitted(const wire::Packet& packet, const wire::Segment& segment, Time now) {
  useless_ = false;
  if (connected()) {
    handle_connected(packet, segment, now);
  } else {
    datagrams_.handle(packet, segment);
  }
  if (overrun_) enter_error(false);
  note_drained();
  return useless_ ? Use::kUseless : Use::kUseful;
}

void QueuePair::handle_connected(const wire::Packet& packet, const wire::Segment& segment,
                                 Time now) {
  if (core_.config.congestion.on) note_mark(segment, 1, now);
  const bool only_receives = state() == QpState::kRtr;
  if (only_receives && !established_) {
    established_ = true;
    raise(EventKind::kCommunicationEstablished);
  }
  if (const auto psn = rider_of(packet, segment); psn && reliable() && !only_receives) {
    requester_.handle_piggyback(*psn, now);
    if (!receives_in(state())) return;
  }
  if (is_request(packet.info().operation)) {
    responder_.handle_request(packet, now);
  } else if (only_receives) {
    count_useless(&Counters::ghost_responses);
  } else {
    requester_.handle_response(packet, now);
  }
}

/// The notification point (Zhu et al., SIGCOMM 2015, section 3.1): the first marked packet is
/// answered at once, and then at most one in an interval.
void QueuePair::note_mark(const wire::Segment& segment, std::uint32_t row, Time now) {
  if ((segment.path.traffic_class & kEcnBits) != kCongestionExperienced) return;
  count(&Counters::marked, row);
  if (now < next_cnp_ && !mutant(Mutant::kCnpForEachMark)) return;
  cnp_due_ = true;
  next_cnp_ = now + core_.config.congestion.cnp_interval;
}

bool QueuePair::handle_cnp(const wire::Packet& packet, const wire::Segment& segment, Time now) {
  ++counters_.packets_received;  // the engine has counted it already
  if (!connected()) {
    count(&Counters::wrong_transport);
    return false;
  }
  if (!from_peer(packet, segment)) return false;
  count(&Counters::cnps_handled);
  pace_.handle_cnp(now);
  return true;
}

}  // namespace verbena::engine
