// SPDX-License-Identifier: Apache-2.0
//
// Packets from the middle of messages that come without their payload: it is fetched from their
// sender, who keeps it as it is until it is acknowledged or recalled.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint32_t kMtu = 1024;
constexpr std::uint32_t kPackets = 8;
constexpr std::uint32_t kLength = kPackets * kMtu;
constexpr std::uint16_t kChannel = 5;

/// Has the payloads that packets were robbed of, and gives so many in all.
class Keeper final : public wire::PayloadSource {
 public:
  std::size_t fetch(std::span<const wire::Segment> packets, std::byte* to) override {
    asked.push_back(packets.size());
    if (meanwhile) meanwhile(packets);
    std::size_t came = 0;
    for (const wire::Segment& packet : packets) {
      if (left == 0) break;
      --left;
      const auto& payload = payloads.at(packet.datagram.data());
      std::ranges::copy(payload, to + came++ * payload.size());
    }
    return came;
  }
  Bytes room(std::size_t size) override { return Bytes(room_).first(size); }

  std::map<const std::byte*, std::vector<std::byte>> payloads;
  std::size_t left = ~std::size_t{0};
  std::vector<std::size_t> asked;  ///< packets of each call
  std::function<void(std::span<const wire::Segment>)> meanwhile;

 private:
  std::vector<std::byte> room_ = std::vector<std::byte>(wire::kMaxChannelMtu);
};

class Lending : public EngineTest {
 protected:
  Lending() : EngineTest(config()) {
    connect({.channel = kChannel});
    fill(a, 0, kLength, 3);
  }

  EngineConfig config() {
    EngineConfig made;
    made.channel_mtu = kMtu;
    made.channel_window = 16 << 10;
    made.lends = [this](const wire::Path& path) { return lends && path.channel == kChannel; };
    made.recall = [this](std::uint16_t channel) {
      EXPECT_EQ(channel, kChannel);
      EXPECT_TRUE(recalls != 0 || a.sent.completions.empty()) << "the program has it back already";
      ++recalls;
    };
    return made;
  }
  void post(SendOpcode opcode, std::uint32_t length = kLength) {
    EXPECT_TRUE(a.send({.id = 1,
                        .opcode = opcode,
                        .signaled = true,
                        .remote_address = b.address(0),
                        .rkey = b.key},
                       {a.piece(0, length)}, now));
  }
  /// Gives `b` packets of which those from the middle come without their payload.
  Handled deliver_lent(std::vector<Datagram>& packets) {
    std::vector<wire::Segment> segments;
    for (Datagram& datagram : packets) {
      const wire::Packet packet = datagram.packet();
      auto& segment =
          segments.emplace_back(wire::Segment{.datagram = datagram.bytes, .path = datagram.path});
      if (packet.info().place != wire::Place::kMiddle) continue;
      const std::size_t headers = packet.info().header_size;
      keeper.payloads[datagram.bytes.data()].assign(packet.payload.begin(), packet.payload.end());
      segment.lent = static_cast<std::uint32_t>(packet.payload.size());
      segment.lender = &keeper;
      segment.datagram = ConstBytes(datagram.bytes).first(headers + wire::kIcrcSize);
      std::ranges::fill(Bytes(datagram.bytes).subspan(headers), std::byte{0xEE});
    }
    return b.engine.handle_batch(segments, now);
  }

  bool lends = true;
  int recalls = 0;
  Keeper keeper;
};

TEST_F(Lending, WhatIsThereIsFetchedByOneCall) {
  for (const SendOpcode opcode : {SendOpcode::kWrite, SendOpcode::kSend}) {
    std::ranges::fill(b.memory, std::byte{0});
    keeper.asked.clear();
    ASSERT_TRUE(b.receive(4, {b.piece(0, kLength)}, now));
    post(opcode);
    auto packets = collect(a);
    ASSERT_EQ(packets.size(), kPackets);
    const std::uint64_t received = b.engine.counters().packets_received;
    EXPECT_EQ(deliver_lent(packets).useful, kPackets);
    EXPECT_EQ(b.engine.counters().packets_received, received + kPackets);
    EXPECT_EQ(keeper.asked, std::vector<std::size_t>{kPackets - 2});
    EXPECT_TRUE(same(a, 0, b, 0, kLength));
    EXPECT_TRUE(exchange());
    EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  }
  EXPECT_EQ(recalls, 0);
}

TEST_F(Lending, WhoAsksForAnAcknowledgementInBetweenGetsIt) {
  post(SendOpcode::kWrite);
  auto packets = collect(a);
  packets[4].bytes[8] |= std::byte{0x80};
  packets.resize(7);
  EXPECT_EQ(deliver_lent(packets).useful, 7U);
  EXPECT_EQ(keeper.asked, std::vector<std::size_t>{6});
  const auto answers = collect(b);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.back().packet().info().operation, wire::Operation::kAcknowledge);
}

// The packets lie where their sender can write over them while their payloads are fetched.
TEST_F(Lending, WhatTheSenderMakesOfThemMeanwhileDoesNotCount) {
  keeper.meanwhile = [](std::span<const wire::Segment> packets) {
    for (const wire::Segment& packet : packets) {
      auto* const bytes = const_cast<std::byte*>(packet.datagram.data());
      bytes[0] = static_cast<std::byte>(wire::Opcode::kRcReadResponseMiddle);
      bytes[11] ^= std::byte{0x55};  // of the PSN
    }
  };
  post(SendOpcode::kWrite);
  auto packets = collect(a);
  EXPECT_EQ(deliver_lent(packets).useful, kPackets);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kRts);
  EXPECT_TRUE(same(a, 0, b, 0, kLength));
  EXPECT_TRUE(exchange());
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  // Nor has anything moved that its own requests go by.
  ASSERT_TRUE(
      b.send({.id = 2, .opcode = SendOpcode::kSend, .signaled = true}, {b.piece(0, 8)}, now));
  ASSERT_TRUE(a.receive(5, {a.piece(0, 8)}, now));
  EXPECT_TRUE(exchange());
  EXPECT_EQ(b.sent.take().status, Status::kSuccess);
}

TEST_F(Lending, WhatDoesNotComeIsLostAndSentAgain) {
  post(SendOpcode::kWrite);
  auto packets = collect(a);
  keeper.left = 2;
  EXPECT_GE(deliver_lent(packets).bad, 1U);
  EXPECT_TRUE(same(a, 0, b, 0, std::size_t{3} * kMtu));
  EXPECT_TRUE(exchange()) << "with all bytes in the packets";
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_TRUE(same(a, 0, b, 0, kLength));
}

TEST_F(Lending, WhatHasNoPlaceInOnePieceGoesALongerWay) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, 1500), b.piece(20'000, kLength - 1500)}, now));
  post(SendOpcode::kSend);
  auto packets = collect(a);
  EXPECT_EQ(deliver_lent(packets).useful, kPackets);
  EXPECT_TRUE(same(a, 0, b, 0, 1500));
  EXPECT_TRUE(same(a, 1500, b, 20'000, kLength - 1500));
  EXPECT_EQ(b.received.take().byte_count, kLength);
}

TEST_F(Lending, OutOfOrderNothingIsPlaced) {
  post(SendOpcode::kWrite);
  auto packets = collect(a);
  packets.erase(packets.begin() + 1);
  deliver_lent(packets);
  EXPECT_TRUE(keeper.asked.empty()) << "nobody looks at it";
  EXPECT_TRUE(std::ranges::all_of(std::span(b.memory).subspan(kMtu),
                                  [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(Lending, AWindowCountsOnlyWhatIsOnItsWay) {
  constexpr std::uint32_t kLong = 64 * kMtu;
  lends = false;
  post(SendOpcode::kWrite, kLong);
  const auto packets = collect(a);
  EXPECT_EQ(packets.size(), 10U) << "16 KiB, of packets of 1536";
  for (const Datagram& packet : packets) deliver(b, packet);
  EXPECT_TRUE(exchange());
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  lends = true;
  post(SendOpcode::kWrite, kLong / 4);
  EXPECT_EQ(collect(a).size(), 16U);
}

TEST_F(Lending, TheWindowIsWholeAgainThoughLendingEndsMeanwhile) {
  for (const bool then : {false, true, false, true}) {
    post(SendOpcode::kWrite);
    auto packets = collect(a);
    lends = then;
    for (const Datagram& packet : packets) deliver(b, packet);
    EXPECT_TRUE(exchange());
    EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  }
  lends = false;
  post(SendOpcode::kWrite, 64 * kMtu);
  EXPECT_EQ(collect(a).size(), 10U);
}

TEST_F(Lending, WhoeverEndsWhatIsUnderWayRecallsItFirst) {
  const auto end_by = [&](QpState state) {
    QpAttributes attributes;
    attributes.state = state;
    EXPECT_TRUE(a.engine.modify(*a.qp, attributes, kMaskState, now));
  };
  end_by(QpState::kErr);
  EXPECT_EQ(recalls, 0) << "nothing is under way";
  end_by(QpState::kReset);
  bring_up(a, b, {.channel = kChannel}, 100, 1100);
  post(SendOpcode::kWrite);
  static_cast<void>(collect(a));
  end_by(QpState::kErr);
  EXPECT_GE(recalls, 1);
  EXPECT_EQ(a.sent.take().status, Status::kFlushError);

  end_by(QpState::kReset);
  bring_up(a, b, {.channel = kChannel}, 100, 1100);
  post(SendOpcode::kWrite);
  static_cast<void>(collect(a));
  recalls = 0;
  end_by(QpState::kReset);
  EXPECT_GE(recalls, 1);

  bring_up(a, b, {.channel = kChannel}, 100, 1100);
  post(SendOpcode::kWrite);
  static_cast<void>(collect(a));
  recalls = 0;
  a.engine.destroy(*a.qp, now);
  EXPECT_GE(recalls, 1);
}

TEST_F(Lending, WhatFailsIsRecalledBeforeItsProgramHears) {
  post(SendOpcode::kWrite);
  static_cast<void>(collect(a));
  for (int i = 0; i < 50 && a.sent.completions.empty(); ++i) {
    if (const Time next = a.engine.poll_timeout(); next != kNever) now = next;
    a.engine.handle_timeout(now);
    static_cast<void>(collect(a));
  }
  EXPECT_EQ(a.sent.take().status, Status::kRetryExceeded);
  EXPECT_GE(recalls, 1);
}

}  // namespace
}  // namespace verbena::engine::testing
