// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "engine/engine.h"
#include "engine/key_table.h"
#include "engine/queue_pair.h"

/// Two engines and the packets between them, for the engine's unit tests.
namespace verbena::engine::testing {

using namespace std::chrono_literals;

struct Sink final : CompletionSink {
  bool complete(const Completion& completion) override {
    if (completions.size() >= limit) return false;
    completions.push_back(completion);
    return true;
  }
  [[nodiscard]] Completion take() {
    if (completions.empty()) {
      ADD_FAILURE() << "no completion";
      return {};
    }
    const Completion first = completions.front();
    completions.pop_front();
    return first;
  }
  std::deque<Completion> completions;
  std::size_t limit = ~std::size_t{0};
};

/// The shared receive queues of an XRC domain.
struct Directory final : ReceiveDirectory {
  [[nodiscard]] const NumberedReceives* find(std::uint32_t number) const override {
    const auto found = entries.find(number);
    return found == entries.end() ? nullptr : &found->second;
  }
  std::map<std::uint32_t, NumberedReceives> entries;
};

/// A packet under way, in its parsed form's bytes.
struct Datagram {
  std::vector<std::byte> bytes;
  wire::Path path;
  [[nodiscard]] wire::Packet packet() const { return wire::parse(bytes).value(); }
};

/// One end: an engine with one queue pair, its memory and queues. An XRC target's domain has one
/// shared receive queue.
class End {
 public:
  static constexpr std::uint32_t kPd = 7;
  static constexpr std::size_t kMemory = 1 << 19;
  static constexpr std::uint32_t kSrq = 0x333;

  End(std::uint32_t address, std::uint32_t number, QpType type = QpType::kRc,
      EngineConfig config = {}, std::size_t memory_size = kMemory)
      : memory(memory_size),
        keys(64, address),
        engine(config, keys, counters),
        source(wire::Address::from_ipv4(address)),
        qpn(number) {
    key = keys.insert({.base = memory.data(),
                       .address = reinterpret_cast<std::uint64_t>(memory.data()),
                       .length = memory.size(),
                       .access = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic,
                       .pd = kPd})
              .value();
    QpConfig made{.number = qpn, .type = type, .send_queue = &sends};
    if (type == QpType::kXrcReceive) {
      directory.entries[kSrq] = {.receives = &receives, .completions = &received, .pd = kPd};
      made.directory = &directory;
    } else {
      made.pd = kPd;
      made.receives = &receives;
      made.send_completions = &sent;
      made.receive_completions = &received;
    }
    qp = engine.create(made).value();
  }

  [[nodiscard]] std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(memory.data()) + offset;
  }
  [[nodiscard]] Sge piece(std::size_t offset, std::uint32_t length) const {
    return {address(offset), length, key};
  }

  Result<void> send(SendRequest request, std::vector<Sge> pieces, Time now) {
    request.pieces = pieces;
    auto done = sends.post(request);
    engine.posted(*qp, now);
    return done;
  }
  Result<void> receive(std::uint64_t id, std::vector<Sge> pieces, Time now) {
    auto done = receives.post({.id = id, .pieces = pieces});
    engine.posted(*qp, now);
    return done;
  }

  std::vector<std::byte> memory;
  KeyTable keys;
  Counters counters;
  Engine engine;
  wire::Address source;
  std::uint32_t qpn;
  std::uint32_t key = 0;
  SendQueue sends{64, 4, 256};
  ReceiveQueue receives{128, 4, kPd};
  Directory directory;
  Sink sent;
  Sink received;
  QueuePair* qp = nullptr;
};

struct ConnectOptions {
  std::uint32_t mtu = 1024;
  std::uint32_t psn = 100;  ///< of the first end; the other starts at the same plus 1000
  std::uint8_t timeout = 14;
  std::uint8_t retries = 3;
  std::uint8_t rnr_retry = 3;
  std::uint8_t rd_atomic = 4;
  std::uint32_t access = kRemoteWrite | kRemoteRead | kRemoteAtomic;
  std::uint16_t channel = 0;
};

class EngineTest : public ::testing::Test {
 protected:
  explicit EngineTest(const EngineConfig& config = {}, QpType type = QpType::kRc)
      : EngineTest(config, type, type) {}
  EngineTest(const EngineConfig& config, QpType type_a, QpType type_b)
      : a(0x7F000001, 0x111, type_a, config), b(0x7F000002, 0x222, type_b, config) {}

  End a;
  End b;
  Time now{};
  /// Sees each packet before it is delivered; false loses it.
  std::function<bool(const Datagram&, bool to_b)> filter = [](const Datagram&, bool) {
    return true;
  };

  void connect(const ConnectOptions& options = {}) {
    bring_up(a, b, options, options.psn, options.psn + 1000);
    bring_up(b, a, options, options.psn + 1000, options.psn);
  }

  void connect_unreliable(std::uint16_t channel = 0) {
    bring_up_unreliable(a, b, channel);
    bring_up_unreliable(b, a, channel);
  }

  /// UC with a path MTU of 256, PSNs from 100 on.
  void bring_up_unreliable(End& end, const End& peer, std::uint16_t channel = 0) {
    QpAttributes attributes;
    attributes.state = QpState::kInit;
    attributes.access = kRemoteWrite;
    attributes.port = 1;
    ASSERT_TRUE(end.engine.modify(*end.qp, attributes,
                                  kMaskState | kMaskPkeyIndex | kMaskPort | kMaskAccess, now));
    attributes.state = QpState::kRtr;
    attributes.path = {
        .source = end.source, .destination = peer.source, .source_port = 4791, .channel = channel};
    attributes.path_mtu = 256;
    attributes.destination_qp = peer.qpn;
    attributes.rq_psn = attributes.sq_psn = 100;
    ASSERT_TRUE(end.engine.modify(
        *end.qp, attributes,
        kMaskState | kMaskPath | kMaskPathMtu | kMaskDestinationQp | kMaskRqPsn, now));
    attributes.state = QpState::kRts;
    ASSERT_TRUE(end.engine.modify(*end.qp, attributes, kMaskState | kMaskSqPsn, now));
  }

  void bring_up(End& end, const End& peer, const ConnectOptions& options, std::uint32_t sq_psn,
                std::uint32_t rq_psn) {
    const auto needed = [&](QpState from, QpState to) {
      return kMaskState | transition(end.qp->config().type, from, to).required;
    };
    QpAttributes attributes;
    attributes.state = QpState::kInit;
    attributes.access = options.access;
    attributes.port = 1;
    ASSERT_TRUE(
        end.engine.modify(*end.qp, attributes, needed(QpState::kReset, QpState::kInit), now));
    attributes.state = QpState::kRtr;
    attributes.path = {.source = end.source,
                       .destination = peer.source,
                       .source_port = 4791,
                       .channel = options.channel};
    attributes.path_mtu = options.mtu;
    attributes.destination_qp = peer.qpn;
    attributes.rq_psn = rq_psn;
    attributes.max_dest_rd_atomic = options.rd_atomic;
    attributes.min_rnr_timer = 1;
    ASSERT_TRUE(end.engine.modify(*end.qp, attributes, needed(QpState::kInit, QpState::kRtr), now));
    attributes.state = QpState::kRts;
    attributes.sq_psn = sq_psn;
    attributes.max_rd_atomic = options.rd_atomic;
    attributes.retry_count = options.retries;
    attributes.rnr_retry = options.rnr_retry;
    attributes.timeout = options.timeout;
    ASSERT_TRUE(end.engine.modify(*end.qp, attributes, needed(QpState::kRtr, QpState::kRts), now));
  }

  /// Everything that an end wants to send now.
  std::vector<Datagram> collect(End& end, Acks acks = Acks::kSend) {
    std::vector<Datagram> out;
    std::array<wire::Train, 16> trains;
    while (const std::size_t count = end.engine.poll_transmit(now, trains, acks)) {
      for (const wire::Train& train : std::span(trains).first(count)) {
        for (std::uint32_t i = 0; i < train.count; ++i) {
          const wire::TrainPacket packet = wire::packet_at(train, i);
          Datagram datagram{.bytes = std::vector<std::byte>(packet.wire_size()),
                            .path = *train.path};
          wire::write_packet(train, packet, 0, datagram.bytes);
          out.push_back(std::move(datagram));
        }
      }
    }
    return out;
  }

  Handled deliver(End& end, const Datagram& datagram) {
    const wire::Segment segment{
        .datagram = datagram.bytes, .path = datagram.path, .undamaged = datagram.path.channel != 0};
    return end.engine.handle_batch(std::span(&segment, 1), now);
  }

  /// Exchanges packets until both are silent; true when anything moved.
  bool exchange() {
    bool any = false;
    for (bool moved = true; moved;) {
      moved = false;
      for (const bool from_a : {true, false}) {
        for (const Datagram& datagram : collect(from_a ? a : b)) {
          moved = any = true;
          if (filter(datagram, from_a)) deliver(from_a ? b : a, datagram);
        }
      }
    }
    return any;
  }

  /// Exchanges, and lets time pass to the next deadline, until nothing is left to wait for (at most
  /// `steps` times).
  void settle(int steps = 200) {
    exchange();
    for (; steps > 0; --steps) {
      const Time next = std::min(a.engine.poll_timeout(), b.engine.poll_timeout());
      if (next == kNever) return;
      now = std::max(now, next);
      a.engine.handle_timeout(now);
      b.engine.handle_timeout(now);
      exchange();
    }
  }

  static void fill(End& end, std::size_t offset, std::size_t length, unsigned seed) {
    for (std::size_t i = 0; i < length; ++i)
      end.memory[offset + i] = static_cast<std::byte>((i * 7 + seed) % 251);
  }
  [[nodiscard]] static bool same(const End& left, std::size_t left_offset, const End& right,
                                 std::size_t right_offset, std::size_t length) {
    return std::equal(left.memory.begin() + static_cast<std::ptrdiff_t>(left_offset),
                      left.memory.begin() + static_cast<std::ptrdiff_t>(left_offset + length),
                      right.memory.begin() + static_cast<std::ptrdiff_t>(right_offset));
  }
};

}  // namespace verbena::engine::testing
