// SPDX-License-Identifier: Apache-2.0
#include "conformance/endpoint.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "conformance/test_memory.h"

namespace verbena::conformance {
namespace {

engine::EngineConfig engine_config() {
  engine::EngineConfig config;
  config.max_qp = 4;
  config.port_mtu = 1024;  // of the captures
  // The floor is for schedulers; here time is exact and the time-outs those of the attributes.
  config.min_ack_timeout = Duration{0};
  return config;
}

void check(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

}  // namespace

Endpoint::Endpoint(const EndpointConfig& config, engine::MemoryLookup& memory)
    : engine(engine_config(), memory, counts), config_(config) {
  using namespace engine;
  qp = engine
           .create({.number = config.local_qp,
                    .type = config.type,
                    .pd = TestMemory::kPd,
                    .send_queue = &sends,
                    .receives = &receives,
                    .send_completions = &sent,
                    .receive_completions = &received})
           .value();
  const bool connected = config.type != QpType::kUd;
  QpAttributes attributes;
  attributes.state = QpState::kInit;
  attributes.access = config.access;
  attributes.port = 1;
  attributes.qkey = config.qkey;
  check(engine.modify(
      *qp, attributes,
      kMaskState | kMaskPkeyIndex | kMaskPort | (connected ? kMaskAccess : kMaskQkey), now_));
  attributes.state = QpState::kRtr;
  attributes.path = {.source = config.local, .destination = config.remote, .source_port = 49152};
  attributes.path_mtu = config.mtu;
  attributes.destination_qp = config.remote_qp;
  attributes.rq_psn = config.rq_psn;
  attributes.max_dest_rd_atomic = config.rd_atomic;
  attributes.min_rnr_timer = config.rnr_timer;
  const std::uint32_t to_rtr = kMaskPath | kMaskPathMtu | kMaskDestinationQp | kMaskRqPsn |
                               kMaskMaxDestRdAtomic | kMaskMinRnrTimer;
  check(engine.modify(*qp, attributes, kMaskState | (connected ? to_rtr : 0u), now_));
  attributes.state = QpState::kRts;
  attributes.sq_psn = config.sq_psn;
  attributes.max_rd_atomic = config.rd_atomic;
  attributes.retry_count = config.retries;
  attributes.rnr_retry = config.rnr_retry;
  attributes.timeout = config.timeout;
  const std::uint32_t to_rts = kMaskMaxRdAtomic | kMaskRetryCount | kMaskRnrRetry | kMaskTimeout;
  check(engine.modify(*qp, attributes, kMaskState | kMaskSqPsn | (connected ? to_rts : 0u), now_));
}

void Endpoint::send(const engine::SendRequest& request) {
  check(sends.post(request));
  engine.posted(*qp, now_);
}

void Endpoint::receive(std::uint64_t id, std::span<const engine::Sge> pieces) {
  check(receives.post({.id = id, .pieces = pieces}));
  engine.posted(*qp, now_);
}

void Endpoint::deliver(ConstBytes datagram, const wire::Path& path,
                       std::optional<std::uint16_t> identification) {
  // A copy of the exact size: a read beyond the datagram is one beyond an allocation.
  const std::vector<std::byte> bytes(datagram.begin(), datagram.end());
  const wire::Segment segment{.datagram = bytes, .path = path, .identification = identification};
  engine.handle_batch(std::span(&segment, 1), now_);
}

void Endpoint::deliver(const wire::Packet& packet) {
  std::vector<std::byte> bytes(wire::encoded_size(packet));
  wire::encode(packet, bytes);
  deliver(bytes, {.source = config_.remote, .destination = config_.local, .source_port = 49152});
}

std::deque<SentPacket> Endpoint::collect() {
  std::deque<SentPacket> out;
  std::array<wire::Train, 16> trains;
  while (const std::size_t count = engine.poll_transmit(now_, trains, engine::Acks::kSend)) {
    for (const wire::Train& train : std::span(trains).first(count)) {
      for (std::uint32_t i = 0; i < train.count; ++i) {
        const wire::TrainPacket packet = wire::packet_at(train, i);
        SentPacket& sent_packet = out.emplace_back();
        sent_packet.bytes.resize(packet.wire_size());
        wire::write_packet(train, packet, 0, sent_packet.bytes);
        sent_packet.path = *train.path;
        sent_packet.packet = wire::parse(sent_packet.bytes).value();
        sent_packet.time = now_;
      }
    }
  }
  return out;
}

void Endpoint::advance(Time to, std::deque<SentPacket>& sent_packets) {
  const auto gather = [&] {
    for (SentPacket& packet : collect()) sent_packets.push_back(std::move(packet));
  };
  gather();
  constexpr int kMostSteps = 1000;
  for (int step = 0; step < kMostSteps; ++step) {
    const Time next = engine.poll_timeout();
    if (next > to) break;
    now_ = std::max(now_, next);
    engine.handle_timeout(now_);
    gather();
  }
  now_ = std::max(now_, to);
}

}  // namespace verbena::conformance
