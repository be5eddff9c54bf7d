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
  static std::optional<std::uint32_t> rider(const Datagram& datagram) {
    return wire::piggybacked_psn(datagram.packet().icrc);
  }
  static void put_rider(Datagram& datagram, std::uint32_t psn) {
    wire::store_icrc(datagram.bytes.data() + datagram.bytes.size() - wire::kIcrcSize,
                     wire::piggyback(psn));
  }

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

TEST_F(Piggyback, RidesInTheFirstOfManyPackets) {
  hold_one();
  const auto out =
      reply({.id = 1, .opcode = SendOpcode::kWrite, .remote_address = b.address(0), .rkey = b.key},
            4 * 32768);
  ASSERT_GT(out.size(), 2u);
  EXPECT_EQ(rider(out[0]), 1100u);
  for (std::size_t i = 1; i < out.size(); ++i) EXPECT_FALSE(rider(out[i])) << i;
}

// The payload of a packet in the middle is placed without a look at it.
TEST_F(Piggyback, DoesNotRideInTheMiddle) {
  const auto first =
      reply({.id = 1, .opcode = SendOpcode::kWrite, .remote_address = b.address(0), .rkey = b.key},
            16 * 32768);
  ASSERT_FALSE(first.empty());  // as much as the window takes
  hold_one();
  for (const Datagram& datagram : first) deliver(b, datagram);
  bool acknowledged = false;
  for (const Datagram& datagram : collect(b)) deliver(a, datagram);
  for (const Datagram& datagram : collect(a)) {
    EXPECT_FALSE(rider(datagram));
    acknowledged |= datagram.packet().info().operation == wire::Operation::kAcknowledge;
  }
  EXPECT_TRUE(acknowledged);
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
  const std::array segments{wire::Segment{.datagram = first[0].bytes, .path = first[0].path},
                            wire::Segment{.datagram = second[0].bytes, .path = second[0].path}};
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
