// SPDX-License-Identifier: Apache-2.0
//
// Long WRITEs of which each packet is a WRITE of its own (`Split`).
#include <gtest/gtest.h>

#include "engine/message.h"
#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint32_t kMtu = 1024;

class Spread : public EngineTest {
 protected:
  Spread()
      : EngineTest({.window_initial = 1 << 20,
                    .segments = [this](const wire::Path&) { return segments; }}) {}

  void post(std::uint32_t length, SendOpcode opcode = SendOpcode::kWrite, std::size_t to = 0) {
    ASSERT_TRUE(
        a.send({.opcode = opcode, .signaled = true, .remote_address = b.address(to), .rkey = b.key},
               {a.piece(0, length)}, now));
  }
  [[nodiscard]] std::vector<wire::Packet> packets_of(const std::vector<Datagram>& datagrams) const {
    std::vector<wire::Packet> packets;
    for (const Datagram& datagram : datagrams) packets.push_back(datagram.packet());
    return packets;
  }
  void expect_success() {
    const Completion completion = a.sent.take();
    EXPECT_EQ(completion.status, Status::kSuccess) << to_string(completion.status);
    EXPECT_TRUE(a.sent.completions.empty());
  }

  bool segments = true;
};

TEST_F(Spread, PacketsOfALongWriteAreWritesOfOneLength) {
  connect({.mtu = kMtu});
  fill(a, 0, 4 * kMtu, 3);
  post(4 * kMtu, SendOpcode::kWrite, 100);
  const auto datagrams = collect(a);
  const auto packets = packets_of(datagrams);
  ASSERT_EQ(packets.size(), 4U);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(packets[i].bth.opcode, wire::Opcode::kRcWriteOnly);
    EXPECT_EQ(packets[i].bth.psn, 100 + i);
    EXPECT_EQ(packets[i].reth.address, b.address(100 + std::size_t{i} * kMtu));
    EXPECT_EQ(packets[i].reth.dma_length, kMtu);
    EXPECT_EQ(packets[i].bth.ack_request, i == 3) << "one completion, one acknowledgement";
    EXPECT_EQ(datagrams[i].bytes.size(), datagrams[0].bytes.size());
  }
  for (const Datagram& datagram : datagrams) deliver(b, datagram);
  settle();
  expect_success();
  EXPECT_TRUE(same(a, 0, b, 100, 4 * kMtu));
}

TEST_F(Spread, WhatIsNoMultipleIsSpreadEvenly) {
  connect({.mtu = kMtu});
  fill(a, 0, 3 * kMtu, 5);
  post(2 * kMtu + 101);
  const auto datagrams = collect(a);
  const auto packets = packets_of(datagrams);
  ASSERT_EQ(packets.size(), 3U);
  constexpr std::uint32_t kEach = 720;  // a third of it, and up to a multiple of four
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(packets[i].payload.size(), i < 2 ? kEach : 2 * kMtu + 101 - 2 * kEach);
    EXPECT_EQ(packets[i].reth.dma_length, packets[i].payload.size());
    EXPECT_EQ(packets[i].reth.address, b.address(std::size_t{i} * kEach));
    deliver(b, datagrams[i]);
  }
  settle();
  expect_success();
  EXPECT_TRUE(same(a, 0, b, 0, 2 * kMtu + 101));
}

TEST_F(Spread, ARetryGoesOnAtTheLostPacket) {
  connect({.mtu = kMtu});
  fill(a, 0, 20 * kMtu, 7);
  std::vector<std::uint32_t> sent;
  filter = [&](const Datagram& datagram, bool to_b) {
    if (!to_b) return true;
    sent.push_back(datagram.packet().bth.psn);
    return sent.size() != 7;
  };
  post(20 * kMtu);
  settle();
  expect_success();
  EXPECT_TRUE(same(a, 0, b, 0, 20 * kMtu));
  ASSERT_EQ(sent.size(), 20U + 14U);
  EXPECT_EQ(sent[20], 106U);
}

/// IBA 9.7.5.1.1 counts the messages: each packet is one.
TEST_F(Spread, EachPacketIsAMessageOfTheResponders) {
  connect({.mtu = kMtu});
  std::uint32_t msn = 0;
  filter = [&](const Datagram& datagram, bool to_b) {
    if (!to_b) msn = datagram.packet().aeth.msn;
    return true;
  };
  post(8 * kMtu);
  settle();
  expect_success();
  EXPECT_EQ(msn, 8U);
}

TEST_F(Spread, WhatIsRefusedMayHaveBegun) {
  connect({.mtu = kMtu});
  fill(a, 0, 4 * kMtu, 9);
  fill(b, End::kMemory - 2 * kMtu, 2 * kMtu, 1);
  post(4 * kMtu, SendOpcode::kWrite, End::kMemory - 2 * kMtu);
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kRemoteAccessError);
  EXPECT_TRUE(same(a, 0, b, End::kMemory - 2 * kMtu, 2 * kMtu)) << "of what may be reached";
}

TEST_F(Spread, AnImmediateKeepsAMessageTogether) {
  connect({.mtu = kMtu});
  ASSERT_TRUE(b.receive(1, {}, now));
  post(4 * kMtu, SendOpcode::kWriteWithImm);
  const auto datagrams = collect(a);
  EXPECT_EQ(datagrams.front().packet().bth.opcode, wire::Opcode::kRcWriteFirst);
  for (const Datagram& datagram : datagrams) deliver(b, datagram);
  settle();
  EXPECT_EQ(b.received.take().byte_count, 4 * kMtu);
}

TEST_F(Spread, OthersStayTogether) {
  connect({.mtu = kMtu});
  const auto opcodes = [&] {
    std::vector<wire::Opcode> all;
    const auto datagrams = collect(a);
    for (const Datagram& datagram : datagrams) deliver(b, datagram);
    settle();
    expect_success();
    return std::pair(datagrams.front().packet().bth.opcode, datagrams.size());
  };
  post(kMtu);
  EXPECT_EQ(opcodes(), std::pair(wire::Opcode::kRcWriteOnly, std::size_t{1}));
  post(kMostSpread + 4);
  EXPECT_EQ(opcodes(), std::pair(wire::Opcode::kRcWriteFirst, std::size_t{kMostSpread / kMtu + 1}));
  ASSERT_TRUE(b.receive(1, {b.piece(0, 2 * kMtu)}, now));
  post(2 * kMtu, SendOpcode::kSend);
  EXPECT_EQ(opcodes(), std::pair(wire::Opcode::kRcSendFirst, std::size_t{2}));
  segments = false;
  post(4 * kMtu);
  EXPECT_EQ(opcodes(), std::pair(wire::Opcode::kRcWriteFirst, std::size_t{4}));
}

/// A network that takes no segmented sends any more changes nothing about what was begun.
TEST_F(Spread, ARequestKeepsWhatItBeganWith) {
  connect({.mtu = kMtu});
  fill(a, 0, 4 * kMtu, 11);
  post(4 * kMtu);
  EXPECT_EQ(collect(a).size(), 4U);
  segments = false;
  now = a.engine.poll_timeout();
  a.engine.handle_timeout(now);
  settle();
  expect_success();
  EXPECT_TRUE(same(a, 0, b, 0, 4 * kMtu));
}

TEST_F(Spread, AChannelHasItsOwnWay) {
  connect({.mtu = kMtu, .channel = 1});
  post(3 * kMostSpread / 4);
  EXPECT_EQ(collect(a).front().packet().bth.opcode, wire::Opcode::kRcWriteFirst);
}

class SpreadRests : public Spread {
 protected:
  /// How many packets leave while rests are held.
  std::uint32_t leave() {
    std::uint32_t packets = 0;
    std::array<wire::Train, 16> trains;
    while (const std::size_t count = a.engine.poll_transmit(now, trains, Acks::kSend, Rests::kHold))
      for (const wire::Train& train : std::span(trains).first(count)) packets += train.count;
    return packets;
  }
};

/// 65507 bytes hold 62 packets of 1024 with their headers.
TEST_F(SpreadRests, WhatFillsNoSendWaitsForTheNextWrite) {
  connect({.mtu = kMtu});
  post(kMtu);
  EXPECT_EQ(leave(), 1U);
  post(40 * kMtu);
  EXPECT_EQ(leave(), 0U);
  EXPECT_TRUE(a.engine.rests_held());
  post(40 * kMtu);
  EXPECT_EQ(leave(), 62U);
  EXPECT_EQ(collect(a).size(), 18U);
}

/// As a stream sends messages into a ring.
TEST_F(SpreadRests, AnImmediateBehindPacketsOfItsLengthIsOneOfThem) {
  connect({.mtu = kMtu});
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(b.receive(i, {}, now));
  post(kMtu);
  EXPECT_EQ(leave(), 1U);
  const auto message = [&](std::uint32_t last) {
    post(39 * kMtu);
    post(last, SendOpcode::kWriteWithImm);
  };
  message(kMtu - 4);
  EXPECT_EQ(leave(), 0U);
  message(kMtu - 4);
  EXPECT_EQ(leave(), 62U);
  message(kMtu - 4);
  EXPECT_EQ(leave(), 0U) << "18 and 40";
  message(kMtu - 4);
  EXPECT_EQ(leave(), 62U);
  EXPECT_EQ(collect(a).size(), 36U);
  message(kMtu);
  EXPECT_EQ(leave(), 40U) << "the last one is longer";
  message(kMtu - 8);
  EXPECT_EQ(leave(), 40U) << "it is shorter: it ends a send";
}

}  // namespace
}  // namespace verbena::engine::testing
