// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: two ends whose requests may be copied without packets.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/direct_memory.h"
#include "engine/test_network.h"

namespace verbena::engine::testing {

inline constexpr std::uint16_t kChannel = 3;

/// The peer's memory is at hand, as far as the test lets it.
class Door final : public DirectMemory {
 public:
  Bytes reach(const Target& target) override {
    targets.push_back(target);
    if (peer == nullptr || targets.size() > allowed) return {};
    EXPECT_FALSE(inside);
    const auto bytes = peer->keys.lookup_remote(target.key, target.address, target.length,
                                                target.access, {.pd = End::kPd});
    inside = bytes.has_value();
    return bytes.value_or(Bytes());
  }
  bool offers(std::uint16_t channel, std::uint32_t access, std::uint64_t length) override {
    EXPECT_EQ(channel, kChannel);
    return (offered & access) != 0 && length <= most;
  }
  std::uint32_t fetch_turn(std::uint16_t channel, std::uint64_t) override {
    EXPECT_EQ(channel, kChannel);
    return turn;
  }
  bool fetch(const Target& target, std::span<const Bytes> to) override {
    fetched.push_back(to.size());
    EXPECT_FALSE(inside);
    const auto bytes = peer->keys.lookup_remote(target.key, target.address, target.length,
                                                target.access, {.pd = End::kPd});
    inside = fetches && bytes.has_value();
    if (!inside) return false;
    ConstBytes rest = *bytes;
    for (const Bytes place : to) {
      std::ranges::copy(rest.first(place.size()), place.begin());
      rest = rest.subspan(place.size());
    }
    EXPECT_TRUE(rest.empty());
    return true;
  }
  bool leave(std::uint16_t channel, Time) override {
    EXPECT_EQ(channel, kChannel);
    EXPECT_TRUE(std::exchange(inside, false));
    return there;
  }
  void admit(const Admission& admission) override { admissions.push_back(admission); }

  End* peer = nullptr;
  std::size_t allowed = ~std::size_t{0};
  std::vector<Target> targets;
  std::vector<Admission> admissions;
  std::uint32_t offered = kRemoteWrite | kRemoteRead;
  std::uint64_t most = ~std::uint64_t{0};
  bool fetches = true;
  std::uint32_t turn = 0;
  std::vector<std::size_t> fetched;  ///< places of each
  bool inside = false;
  bool there = true;
};

inline EngineConfig with(Door& door) {
  EngineConfig config;
  config.direct = &door;
  return config;
}

/// Both ends have the same door; only `a` sends.
class Direct : public ::testing::Test {
 protected:
  Direct() {
    door_.peer = &b_;
    bring_up(a_, b_, 500);
    bring_up(b_, a_, 500);
    for (std::size_t i = 0; i < a_.memory.size(); ++i) a_.memory[i] = static_cast<std::byte>(i * 7);
  }

  void bring_up(End& end, const End& peer, std::uint32_t psn) {
    QpAttributes attributes;
    attributes.state = QpState::kInit;
    attributes.access = kRemoteWrite | kRemoteRead | kRemoteAtomic;
    attributes.port = 1;
    const auto go = [&](QpState from, QpState to) {
      attributes.state = to;
      ASSERT_TRUE(end.engine.modify(*end.qp, attributes,
                                    kMaskState | transition(QpType::kRc, from, to).required, now_));
    };
    go(QpState::kReset, QpState::kInit);
    attributes.path = {.source = end.source, .destination = peer.source, .channel = kChannel};
    attributes.path_mtu = 1024;
    attributes.destination_qp = peer.qpn;
    attributes.rq_psn = attributes.sq_psn = psn;
    attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4;
    attributes.timeout = 14;
    attributes.retry_count = attributes.rnr_retry = 3;
    go(QpState::kInit, QpState::kRtr);
    go(QpState::kRtr, QpState::kRts);
  }
  void write(std::uint64_t id, std::uint32_t length, SendOpcode opcode = SendOpcode::kWrite) {
    ASSERT_TRUE(a_.send({.id = id,
                         .opcode = opcode,
                         .signaled = true,
                         .remote_address = b_.address(0),
                         .rkey = b_.key},
                        {a_.piece(0, length)}, now_));
  }
  /// A turn's worth of WRITEs: two are done, and the third one is half way.
  void begin_three() {
    for (std::uint64_t id = 0; id < 3; ++id) write(id, 500'000);
    EXPECT_TRUE(turn(a_).empty());
    EXPECT_EQ(a_.sent.completions.size(), 2U);
  }
  /// What leaves `end` in one turn.
  std::vector<Datagram> turn(End& end) {
    std::vector<Datagram> out;
    std::array<wire::Train, 16> trains;
    const std::size_t count = end.engine.poll_transmit(now_, trains, Acks::kSend);
    for (const wire::Train& train : std::span(trains).first(count)) {
      for (std::uint32_t i = 0; i < train.count; ++i) {
        const wire::TrainPacket packet = wire::packet_at(train, i);
        out.push_back({.bytes = std::vector<std::byte>(packet.wire_size()), .path = *train.path});
        wire::write_packet(train, packet, 0, out.back().bytes);
      }
    }
    return out;
  }
  void deliver(End& end, const std::vector<Datagram>& datagrams) {
    for (const Datagram& datagram : datagrams) {
      const wire::Segment segment{.datagram = datagram.bytes, .path = datagram.path};
      end.engine.handle_batch(std::span(&segment, 1), now_);
    }
  }

  static constexpr std::size_t kLong = 5 << 18;  ///< more than one call fetches
  Door door_;
  End a_{0x7F000001, 0x111, QpType::kRc, with(door_), kLong};
  End b_{0x7F000002, 0x222, QpType::kRc, with(door_), kLong};
  Time now_{};
};

}  // namespace verbena::engine::testing
