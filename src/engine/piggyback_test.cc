// SPDX-License-Identifier: Apache-2.0
//
// Acknowledgements that ride in requests, between two processes of one machine.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/test_network.h"
#include "wire/icrc.h"

namespace verbena::engine::testing {
namespace {

class Piggyback : public EngineTest {
 protected:
  static constexpr std::uint32_t kPacket = wire::kMaxChannelMtu;

  explicit Piggyback(std::uint16_t channel = 1) {
    connect({.channel = channel});
    for (std::uint64_t id = 0; id < 8; ++id) {
      EXPECT_TRUE(a.receive(id, {a.piece(2048, 1024)}, now));
      EXPECT_TRUE(b.receive(id, {b.piece(2048, 1024)}, now));
    }
    settle();
  }
  /// One of b's messages comes, and its acknowledgement waits.
  void hold_one() {
    ASSERT_TRUE(b.send(send_, {b.piece(0, 100)}, now));
    for (const Datagram& datagram : collect(b)) deliver(a, datagram);
    ASSERT_TRUE(collect(a, Acks::kHold).empty());
  }
  /// What a says then, and the acknowledgement with it.
  std::vector<Datagram> reply(SendRequest request, std::uint32_t length) {
    EXPECT_TRUE(a.send(request, {a.piece(0, length)}, now));
    return collect(a);
  }
  std::vector<Datagram> write(std::uint32_t length) {
    return reply(
        {.id = 1, .opcode = SendOpcode::kWrite, .remote_address = b.address(0), .rkey = b.key},
        length);
  }
  static std::optional<std::uint32_t> rider(const Datagram& datagram) {
    return wire::piggybacked_psn(datagram.packet().icrc);
  }
  static void put_rider(Datagram& datagram, std::uint32_t psn) {
    wire::store_icrc(datagram.bytes.data() + datagram.bytes.size() - wire::kIcrcSize,
                     wire::piggyback(psn));
  }

  static wire::Segment segment_of(const Datagram& datagram) {
    return {.datagram = datagram.bytes, .path = datagram.path, .undamaged = true};
  }

  std::vector<Sge> pieces_{a.piece(0, 8)};
  SendRequest send_{.id = 1, .opcode = SendOpcode::kSend, .signaled = true};
};

class PiggybackOfANetwork : public Piggyback {
 protected:
  PiggybackOfANetwork() : Piggyback(0) {}
};

TEST_F(Piggyback, RidesInTheReply) {
  hold_one();
  const auto out = reply(send_, 100);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(rider(out[0]), 1100u);
  EXPECT_EQ(a.counters.acks_sent, 1u);
  deliver(b, out[0]);
  EXPECT_EQ(b.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().byte_count, 100u);
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

// Who is told sooner might not look when the rest comes.
TEST_F(Piggyback, RidesInTheLastOfManyPackets) {
  hold_one();
  const auto out = write(4 * kPacket);
  ASSERT_EQ(out.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(rider(out[i])) << i;
  EXPECT_EQ(rider(out[3]), 1100u);
}

TEST_F(Piggyback, RidesInTheLastOfManyRequests) {
  hold_one();
  ASSERT_TRUE(a.sends.post({.id = 1,
                            .opcode = SendOpcode::kWrite,
                            .remote_address = b.address(0),
                            .rkey = b.key,
                            .pieces = pieces_}));
  const auto out = reply(send_, 100);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_FALSE(rider(out[0]));
  EXPECT_EQ(rider(out[1]), 1100u);
}

// The payload of a packet in the middle is placed without a look at it.
TEST_F(Piggyback, DoesNotRideInTheMiddle) {
  hold_one();
  const auto out = write(16 * kPacket);  // more than the window takes
  ASSERT_GT(out.size(), 2u);
  for (const Datagram& datagram : out) EXPECT_FALSE(rider(datagram));
  ASSERT_EQ(out[out.size() - 2].packet().info().place, wire::Place::kMiddle);
  EXPECT_EQ(out.back().packet().info().operation, wire::Operation::kAcknowledge);
}

TEST_F(Piggyback, MayBeAnything) {
  ASSERT_TRUE(b.send(send_, {b.piece(0, 100)}, now));
  ASSERT_EQ(collect(b).size(), 1u);
  auto out = reply(send_, 100);
  for (const std::uint32_t word : {0u, 1100u, 1u << 25 | 1100u, ~0u}) {
    wire::store_icrc(out.at(0).bytes.data() + out[0].bytes.size() - wire::kIcrcSize, word);
    deliver(b, out[0]);
    EXPECT_TRUE(b.sent.completions.empty()) << word;
  }
}

TEST_F(Piggyback, ThatMakesACompletionQueueOverflowEndsTheQueuePair) {
  hold_one();
  b.sent.limit = 0;
  deliver(b, reply(send_, 100).at(0));
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
}

TEST_F(Piggyback, OfWhatIsNotUnderWayMeansNothing) {
  auto out = reply(send_, 100);
  ASSERT_EQ(out.size(), 1u);
  ASSERT_TRUE(b.send(send_, {b.piece(0, 100)}, now));
  ASSERT_EQ(collect(b).size(), 1u);
  for (const std::uint32_t psn : {1099u, 1101u, 99u}) {
    put_rider(out[0], psn);
    deliver(b, out[0]);
    EXPECT_TRUE(b.sent.completions.empty()) << psn;
  }
  EXPECT_EQ(b.counters.ghost_responses, 3u);
  EXPECT_EQ(b.received.take().byte_count, 100u);
}

TEST_F(Piggyback, OfARequestThatComesAgainIsDoneWith) {
  hold_one();
  const auto out = reply(send_, 100);
  deliver(b, out.at(0));
  deliver(b, out.at(0));
  EXPECT_EQ(b.sent.completions.size(), 1u);
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

TEST_F(Piggyback, ThatIsLostIsSaidAgain) {
  hold_one();
  ASSERT_EQ(reply(send_, 100).size(), 1u);
  settle();
  EXPECT_EQ(b.sent.take().status, Status::kSuccess);
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

// Packets like the one before are taken by a shorter way, which knows of no rider.
TEST_F(Piggyback, IsFoundInTheSecondOfARow) {
  auto first = reply(send_, 100);
  hold_one();
  auto second = reply(send_, 100);
  ASSERT_EQ(first.size() + second.size(), 2u);
  const std::array segments{segment_of(first[0]), segment_of(second[0])};
  b.engine.handle_batch(segments, now);
  EXPECT_EQ(b.sent.take().status, Status::kSuccess);
  EXPECT_EQ(b.received.take().byte_count, 100u);
  EXPECT_EQ(b.received.take().byte_count, 100u);
}

TEST_F(PiggybackOfANetwork, IsAnIcrcLikeAnyOther) {
  auto out = reply(send_, 100);
  ASSERT_TRUE(b.send(send_, {b.piece(0, 100)}, now));
  ASSERT_EQ(collect(b).size(), 1u);
  put_rider(out.at(0), 1100);
  deliver(b, out[0]);
  EXPECT_EQ(b.received.take().byte_count, 100u);
  EXPECT_TRUE(b.sent.completions.empty());
}

TEST_F(PiggybackOfANetwork, DoesNotExist) {
  hold_one();
  EXPECT_EQ(reply(send_, 100).size(), 2u);
}

}  // namespace
}  // namespace verbena::engine::testing
