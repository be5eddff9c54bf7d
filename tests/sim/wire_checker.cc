// SPDX-License-Identifier: Apache-2.0
#include "sim/wire_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "wire/headers.h"
#include "wire/icrc.h"

namespace verbena::sim {
namespace {

/// More PSNs than are ever under way in a flow.
constexpr std::uint32_t kRing = 8192;
/// A NIC's turn is over long before.
constexpr Duration kNakGrace = std::chrono::milliseconds(1);
constexpr std::uint32_t kForEver = 7;  ///< an rnr_retry

std::uint32_t add(std::uint32_t psn, std::uint32_t count) { return (psn + count) & wire::kMask24; }

/// In [-2^23, 2^23).
std::int32_t distance(std::uint32_t psn, std::uint32_t from) {
  return static_cast<std::int32_t>((psn - from) << 8) / 256;
}

std::uint32_t packets(std::uint64_t length, std::uint32_t mtu) {
  return length == 0 ? 1 : static_cast<std::uint32_t>((length + mtu - 1) / mtu);
}

bool is_read_or_atomic(const wire::OpcodeInfo& info) {
  return info.operation == wire::Operation::kReadRequest ||
         info.operation == wire::Operation::kCompareSwap ||
         info.operation == wire::Operation::kFetchAdd;
}

bool is_request(const wire::OpcodeInfo& info) {
  return info.operation == wire::Operation::kSend || info.operation == wire::Operation::kWrite ||
         is_read_or_atomic(info);
}

wire::Transport transport_of(const FlowSpec& spec) {
  return spec.extended ? wire::Transport::kXrc : wire::Transport::kRc;
}

bool is_reliable(const wire::OpcodeInfo& info) {
  return info.transport == wire::Transport::kRc || info.transport == wire::Transport::kXrc;
}

bool is_response_with_data(const wire::OpcodeInfo& info) {
  return info.operation == wire::Operation::kReadResponse ||
         info.operation == wire::Operation::kAtomicAcknowledge;
}

/// How long an RNR NAK asks to wait, by the code in it (Table 45).
Duration rnr_wait(std::uint8_t code) {
  constexpr std::array<std::int64_t, 32> kTensOfMicroseconds = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::chrono::microseconds(10 * kTensOfMicroseconds[code % 32]);
}

bool begins(wire::Place place) {
  return place == wire::Place::kFirst || place == wire::Place::kOnly;
}
bool ends(wire::Place place) { return place == wire::Place::kLast || place == wire::Place::kOnly; }

/// What was lent and is not to be had any more is lost, as the NIC will find.
bool is_whole(const wire::Segment& segment) {
  if (segment.lender == nullptr) return true;
  std::vector<std::byte> payload(segment.lent);
  return segment.lender->fetch(std::span(&segment, 1), payload.data()) == 1;
}

}  // namespace

class WireChecker::Tap final : public link::Link {
 public:
  Tap(WireChecker& checker, const wire::Address& address, std::unique_ptr<link::Link> below)
      : checker_(checker), address_(address), below_(std::move(below)) {}

  std::size_t send(std::span<const wire::Train> trains, Time now) override {
    const std::size_t taken = below_->send(trains, now);
    for (const wire::Train& train : trains.first(taken)) checker_.sent(address_, train);
    return taken;
  }
  [[nodiscard]] bool send_short(const wire::ShortSend& message) override {
    if (!below_->send_short(message)) return false;
    checker_.sent(address_, wire::train_of(message));
    return true;
  }
  std::size_t receive(std::span<wire::Segment> segments, Time now) override {
    const std::size_t count = below_->receive(segments, now);
    for (const wire::Segment& segment : segments.first(count)) {
      if (is_whole(segment)) checker_.received(address_, segment);
    }
    return count;
  }
  [[nodiscard]] bool segments(const wire::Path& path) override { return below_->segments(path); }
  [[nodiscard]] bool lends(const wire::Path& path) override { return below_->lends(path); }
  void recall(std::uint16_t channel) override { below_->recall(channel); }
  [[nodiscard]] bool arm() override { return below_->arm(); }
  [[nodiscard]] Time poll_timeout() const override { return below_->poll_timeout(); }
  [[nodiscard]] std::optional<std::uint16_t> source_port() const override {
    return below_->source_port();
  }

 private:
  WireChecker& checker_;
  wire::Address address_;
  std::unique_ptr<link::Link> below_;
};

std::unique_ptr<link::Link> WireChecker::wrap(const wire::Address& address,
                                              std::unique_ptr<link::Link> below) {
  return std::make_unique<Tap>(*this, address, std::move(below));
}

void WireChecker::open(const FlowSpec& spec) {
  Flow& flow = flows_[{spec.local, spec.local_qp}];
  flow = Flow{.spec = spec,
              .high = spec.sq_psn,
              .unacked = spec.sq_psn,
              .expected = spec.rq_psn,
              .furthest = spec.rq_psn};
  flow.sent.resize(kRing);
  flow.accepted.resize(kRing);
  flow.came.resize(kRing);
}

void WireChecker::close(const wire::Address& local, std::uint32_t local_qp) {
  flows_.erase({local, local_qp});
}

void WireChecker::alive(const wire::Address& local, std::uint32_t local_qp, Time posted) {
  const auto found = flows_.find({local, local_qp});
  if (found == flows_.end()) return;
  const std::optional<Time>& due = found->second.nak_due;
  if (due.has_value() && posted > *due + kNakGrace) accuse(found->second, "a gap was not NAKed");
}

std::uint32_t WireChecker::transmissions(const wire::Address& local, std::uint32_t local_qp) const {
  const auto found = flows_.find({local, local_qp});
  if (found == flows_.end()) return 0;
  const Flow& flow = found->second;
  std::uint32_t most = 0;
  for (std::uint32_t psn = flow.unacked; distance(flow.high, psn) > 0; psn = add(psn, 1)) {
    const Flow::Sent& sent = flow.sent[psn % kRing];
    if (sent.psn == psn) most = std::max(most, sent.times);
  }
  return most;
}

std::uint32_t WireChecker::high_psn(const wire::Address& local, std::uint32_t local_qp) const {
  const auto found = flows_.find({local, local_qp});
  return found == flows_.end() ? 0 : found->second.high;
}

std::uint64_t WireChecker::messages_begun(const wire::Address& local, std::uint32_t local_qp,
                                          std::uint32_t queue) const {
  const auto found = flows_.find({local, local_qp});
  if (found == flows_.end()) return 0;
  const auto begun = found->second.begun.find(queue);
  return begun == found->second.begun.end() ? 0 : begun->second;
}

WireChecker::Flow* WireChecker::towards(const wire::Address& from, const wire::Address& to,
                                        std::uint32_t peer_qp) {
  for (auto& [key, flow] : flows_) {
    if (flow.spec.local == from && flow.spec.peer == to && flow.spec.peer_qp == peer_qp) {
      return &flow;
    }
  }
  return nullptr;
}

void WireChecker::accuse(const Flow& flow, const std::string& what) {
  fail_(fmt::format("on the wire: {} qp {:#08x}: {}", wire::to_string(flow.spec.local),
                    flow.spec.local_qp, what));
}

// --- What a NIC sends

void WireChecker::sent(const wire::Address& from, const wire::Train& train) {
  const wire::Bth& bth = train.head.bth;
  Flow* const flow = towards(from, train.path->destination, bth.destination_qp);
  if (flow == nullptr) return;
  if (!bth.migration || bth.pkey != 0xFFFF || bth.version != 0) accuse(*flow, "a wrong BTH");
  if (train.path->source != from) accuse(*flow, "a packet with another's source address");
  const wire::OpcodeInfo& info = wire::info(bth.opcode);
  if (!is_reliable(info)) return;
  if (const auto psn = wire::piggybacked_psn(train.piggyback)) {
    if (train.path->channel == 0 || !is_request(info))
      accuse(*flow, "an acknowledgement that rides");
    check_covered(*flow, *psn);
  }
  if (info.transport != transport_of(flow->spec)) accuse(*flow, "a packet of another transport");
  if (is_request(info)) return sent_request(*flow, train);
  sent_response(*flow, train.head);
}

void WireChecker::sent_request(Flow& flow, const wire::Train& train) {
  const wire::OpcodeInfo& info = train.head.info();
  const std::uint32_t psn = train.head.bth.psn;
  if (distance(psn, flow.high) > 0) {
    return accuse(flow, fmt::format("PSN {} leaves before {}", psn, flow.high));
  }
  if (distance(psn, flow.high) < 0) retransmitted_ += train.count;
  check_going_back(flow, psn);
  std::uint32_t span = train.count;
  if (is_read_or_atomic(info)) {
    if (info.operation == wire::Operation::kReadRequest) {
      span = packets(train.head.reth.dma_length, flow.spec.mtu);
    }
    std::erase_if(flow.reads, [&](const auto& read) { return distance(read.end, psn) > 0; });
    flow.reads.push_back({psn, add(psn, span)});
    if (psn == flow.high) flow.unanswered.push_back({psn, add(psn, span)});
    if (flow.reads.size() > flow.spec.max_rd_atomic) {
      accuse(flow, fmt::format("{} READs and atomics are under way, {} were agreed",
                               flow.reads.size(), flow.spec.max_rd_atomic));
    }
  }
  for (std::uint32_t i = 0; i < span; ++i) {
    Flow::Sent& sent = flow.sent[add(psn, i) % kRing];
    if (sent.psn != add(psn, i)) sent = {.psn = add(psn, i)};
    ++sent.times;
  }
  if (distance(add(psn, span), flow.high) > 0) flow.high = add(psn, span);
}

void WireChecker::check_going_back(Flow& flow, std::uint32_t psn) {
  if (distance(psn, flow.unacked) < 0) {
    return accuse(flow, fmt::format("sends PSN {} again, which is acknowledged", psn));
  }
  Flow::RnrWait& rnr = flow.rnr;
  if (!rnr.begun) return;
  rnr.begun = false;
  ++rnr.rounds;
  if (scheduler_.now() < rnr.until) {
    return accuse(flow, fmt::format("sends PSN {} and does not wait for the RNR timer", psn));
  }
  if (flow.spec.rnr_retry != kForEver && rnr.rounds > flow.spec.rnr_retry) {
    accuse(flow, fmt::format("asks for a receive for the {}. time, {} retries were agreed",
                             rnr.rounds, flow.spec.rnr_retry));
  }
}

bool WireChecker::check_covered(const Flow& flow, std::uint32_t psn) {
  if (distance(psn, flow.furthest) < 0) return true;
  accuse(flow, fmt::format("acknowledges PSN {}, but {} has not come", psn, flow.furthest));
  return false;
}

void WireChecker::sent_response(Flow& flow, const wire::Packet& head) {
  if (head.info().operation != wire::Operation::kAcknowledge) return;
  const std::uint32_t psn = head.bth.psn;
  const bool ack = head.aeth.kind == wire::Aeth::Kind::kAck;
  // An ACK covers its PSN, a NAK everything before it.
  const std::uint32_t covered = ack ? psn : add(psn, wire::kMask24);
  if (!check_covered(flow, covered)) return;
  const Flow::Accepted& accepted = flow.accepted[covered % kRing];
  // That of a READ that came again tells the latest, as all for duplicates.
  const bool refusal =
      head.aeth.kind == wire::Aeth::Kind::kNak &&
      head.aeth.value == static_cast<std::uint8_t>(wire::NakCode::kRemoteAccessError);
  const std::uint32_t latest = refusal ? flow.msn : accepted.msn;
  const std::uint32_t msn = head.aeth.msn;
  const bool right = distance(msn, accepted.msn) >= 0 && distance(msn, latest) <= 0;
  if (accepted.psn == covered && !right) {
    return accuse(flow,
                  fmt::format("MSN {} with PSN {}, must be {}", head.aeth.msn, psn, accepted.msn));
  }
  if (!ack) sent_nak(flow, head);
}

void WireChecker::sent_nak(Flow& flow, const wire::Packet& head) {
  const std::uint32_t psn = head.bth.psn;
  const bool rnr = head.aeth.kind == wire::Aeth::Kind::kRnrNak;
  const bool sequence =
      !rnr && head.aeth.value == static_cast<std::uint8_t>(wire::NakCode::kSequenceError);
  ++(rnr ? rnr_naks_ : naks_);
  if (rnr && flow.spec.shares) ++shared_rnr_naks_;
  if (flow.nak_psn != psn) flow.naks = 0;
  ++flow.naks;
  // Once for a gap, and once more each time that the packet came and could not be taken.
  const Flow::Sent& came = flow.came[psn % kRing];
  if ((rnr || sequence) && flow.naks > 1 + (came.psn == psn ? came.times : 0)) {
    return accuse(flow, fmt::format("NAKs PSN {} for the {}. time", psn, flow.naks));
  }
  if (rnr) {
    const Flow::Accepted& accepted = flow.accepted[psn % kRing];
    if (accepted.psn == psn && !accepted.needs_receive) {
      return accuse(flow, fmt::format("RNR NAK for PSN {}, which needs no receive", psn));
    }
    // It was not accepted, nor was what came behind it, which may be cut otherwise when it comes
    // again.
    if (distance(psn, flow.expected) < 0) {
      take_back(flow, psn);
      flow.msn = head.aeth.msn;
    }
  }
  flow.nak_psn = psn;
  flow.came_since_nak = false;
  flow.nak_due.reset();
}

/// Nothing from `psn` on was accepted.
void WireChecker::take_back(Flow& flow, std::uint32_t psn) {
  for (std::uint32_t each = psn; each != flow.expected; each = add(each, 1)) {
    const Flow::Accepted& accepted = flow.accepted[each % kRing];
    if (accepted.psn == each && accepted.needs_receive) --flow.begun[accepted.queue];
  }
  flow.expected = psn;
}

// --- What a NIC gets

void WireChecker::received(const wire::Address& at, const wire::Segment& segment) {
  const ConstBytes bytes = segment.datagram;
  if (bytes.size() < wire::Bth::kSize + wire::kIcrcSize) return;
  const ConstBytes covered = bytes.first(bytes.size() - wire::kIcrcSize);
  if (!segment.undamaged && wire::icrc(segment.path, segment.identification.value_or(0), covered) !=
                                wire::load_icrc(bytes.data() + covered.size())) {
    ++corrupt_;
    return;
  }
  const auto packet = wire::parse(bytes);
  if (!packet) return;
  const wire::Transport transport = packet->info().transport;
  if (transport == wire::Transport::kUd || transport == wire::Transport::kUc)
    return on_datagram_(at, *packet, segment);
  const auto found = flows_.find({at, packet->bth.destination_qp});
  if (found == flows_.end() || transport != transport_of(found->second.spec)) return;
  Flow& flow = found->second;
  if (segment.path.source != flow.spec.peer || (packet->bth.pkey & 0x7FFF) != 0x7FFF) return;
  if (const auto psn = wire::piggybacked_psn(packet->icrc); psn && segment.undamaged) {
    ++piggybacks_;
    received_acknowledgement(flow, *psn);
  }
  if (is_request(packet->info())) return received_request(flow, *packet);
  received_response(flow, *packet);
}

void WireChecker::received_request(Flow& flow, const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  const std::uint32_t psn = packet.bth.psn;
  if (flow.nak_psn == psn) flow.came_since_nak = true;
  Flow::Sent& came = flow.came[psn % kRing];
  if (came.psn != psn) came = {.psn = psn};
  ++came.times;
  const std::int32_t ahead = distance(psn, flow.expected);
  if (ahead < 0) return;
  if (ahead > 0) {
    const bool silent = flow.nak_psn && !flow.came_since_nak;
    if (!silent && !flow.nak_due) flow.nak_due = scheduler_.now();
    return;
  }
  const std::uint32_t span = info.operation == wire::Operation::kReadRequest
                                 ? packets(packet.reth.dma_length, flow.spec.mtu)
                                 : 1;
  if (ends(info.place)) flow.msn = (flow.msn + 1) & wire::kMask24;
  const bool send = info.operation == wire::Operation::kSend;
  const bool needs = send ? begins(info.place) : info.has_immediate && ends(info.place);
  for (std::uint32_t i = 0; i < span; ++i) {
    flow.accepted[add(psn, i) % kRing] = {.psn = add(psn, i),
                                          .msn = flow.msn,
                                          .needs_receive = needs,
                                          .queue = packet.xrceth.srq_number};
  }
  if (needs) ++flow.begun[packet.xrceth.srq_number];
  flow.expected = add(psn, span);
  if (distance(flow.expected, flow.furthest) > 0) flow.furthest = flow.expected;
}

/// Of what is acknowledged, or was never sent, it changes nothing.
void WireChecker::received_acknowledgement(Flow& flow, std::uint32_t psn) {
  if (distance(psn, flow.unacked) >= 0 && distance(psn, flow.high) < 0)
    acknowledge_before(flow, add(psn, 1));
}

void WireChecker::received_response(Flow& flow, const wire::Packet& packet) {
  const std::uint32_t psn = packet.bth.psn;
  const std::uint32_t end = add(psn, 1);
  const bool data = is_response_with_data(packet.info());
  if (data) {
    std::erase_if(flow.reads, [&](const auto& read) { return distance(read.end, end) <= 0; });
  }
  // Of what is acknowledged, or was never sent: it changes nothing.
  if (distance(psn, flow.unacked) < 0 || distance(psn, flow.high) >= 0) return;
  if (data) {
    if (!acknowledge_before(flow, psn) || flow.unanswered.empty()) return;
    ReadUnderWay& read = flow.unanswered.front();
    if (read.first != psn) return;
    read.first = flow.unacked = end;
    flow.rnr.rounds = 0;
    if (read.first == read.end) flow.unanswered.pop_front();
    return;
  }
  switch (packet.aeth.kind) {
    case wire::Aeth::Kind::kAck: acknowledge_before(flow, end); return;
    case wire::Aeth::Kind::kNak: acknowledge_before(flow, psn); return;
    case wire::Aeth::Kind::kRnrNak: return await_receive(flow, packet);
    case wire::Aeth::Kind::kReserved: return;
  }
}

/// False when a READ or an atomic stands in the way whose response did not come.
bool WireChecker::acknowledge_before(Flow& flow, std::uint32_t end_psn) {
  std::uint32_t end = end_psn;
  if (!flow.unanswered.empty() && distance(flow.unanswered.front().first, end) < 0) {
    end = flow.unanswered.front().first;
  }
  if (distance(end, flow.unacked) > 0) {
    flow.unacked = end;
    flow.rnr.rounds = 0;
  }
  return end == end_psn;
}

void WireChecker::await_receive(Flow& flow, const wire::Packet& packet) {
  if (!acknowledge_before(flow, packet.bth.psn) || flow.rnr.begun) return;
  flow.rnr.begun = true;
  flow.rnr.until = scheduler_.now() + rnr_wait(packet.aeth.value);
}

}  // namespace verbena::sim
