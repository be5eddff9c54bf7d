// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "conformance/test_memory.h"
#include "engine/engine.h"
#include "wire/packet.h"

namespace verbena::conformance {

/// Completions in the order they came.
struct Sink final : engine::CompletionSink {
  bool complete(const engine::Completion& completion) override {
    completions.push_back(completion);
    return true;
  }
  std::vector<engine::Completion> completions;
};

/// A packet that the engine sent. Not to be copied: `packet` points into `bytes`.
struct SentPacket {
  std::vector<std::byte> bytes;
  wire::Path path{};
  wire::Packet packet{};
  Time time{};
};

struct EndpointConfig {
  engine::QpType type = engine::QpType::kRc;
  wire::Address local{};
  wire::Address remote{};
  std::uint32_t local_qp = 0;
  std::uint32_t remote_qp = 0;
  std::uint32_t sq_psn = 0;
  std::uint32_t rq_psn = 0;
  std::uint32_t mtu = 1024;
  std::uint32_t access = engine::kRemoteWrite | engine::kRemoteRead | engine::kRemoteAtomic;
  std::uint8_t rd_atomic = 4;
  std::uint8_t timeout = 0;
  std::uint8_t retries = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t rnr_timer = 14;
  std::uint32_t qkey = 0;
};

/// An engine with one queue pair in RTS: our stack in the place of one end of a capture.
class Endpoint {
 public:
  Endpoint(const EndpointConfig& config, engine::MemoryLookup& memory);

  void send(const engine::SendRequest& request);
  void receive(std::uint64_t id, std::span<const engine::Sge> pieces);
  void deliver(ConstBytes datagram, const wire::Path& path,
               std::optional<std::uint16_t> identification = std::nullopt);
  /// From the peer's address.
  void deliver(const wire::Packet& packet);
  /// All that it wants to send now.
  [[nodiscard]] std::deque<SentPacket> collect();
  /// Moves the time on, and hands the engine its time-outs on the way; what it sends at each is
  /// appended.
  void advance(Time to, std::deque<SentPacket>& sent);

  [[nodiscard]] const engine::Counters& counters() const { return engine.counters(); }
  [[nodiscard]] engine::QpState state() const { return engine.state(*qp); }
  [[nodiscard]] const EndpointConfig& config() const { return config_; }
  [[nodiscard]] Time now() const { return now_; }

  static constexpr std::uint32_t kDepth = 512;

  engine::SendQueue sends{kDepth, 4, 256};
  engine::ReceiveQueue receives{kDepth, 4, TestMemory::kPd};
  Sink sent;
  Sink received;
  engine::Counters counts;
  engine::Engine engine;
  engine::QueuePair* qp = nullptr;

 private:
  EndpointConfig config_;
  Time now_{};
};

}  // namespace verbena::conformance
