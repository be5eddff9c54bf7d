// SPDX-License-Identifier: Apache-2.0
//
// Payload that is placed while its packet is verified: in the middle of a message, and nowhere
// else.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint32_t kMtu = 1024;
constexpr std::uint32_t kLength = 4 * kMtu - 100;
constexpr std::byte kSent{0x5A};

/// Says of every packet what the test wants, and how it was asked.
class Judge final : public wire::IcrcVerifier {
 public:
  bool holds(const wire::Segment&) override {
    ++asked;
    return right;
  }
  bool holds_copied(const wire::Segment& segment, std::size_t header_size, std::byte* to) override {
    ++copied;
    return trusting_.holds_copied(segment, header_size, to) && right && copied != wrong_copy;
  }

  bool right = true;
  int wrong_copy = 0;  ///< 0: none
  int asked = 0;
  int copied = 0;

 private:
  wire::TrustingVerifier trusting_;
};

class Placing : public EngineTest {
 protected:
  Placing() {
    connect({.mtu = kMtu});
    std::fill_n(a.memory.begin(), kLength, kSent);
  }

  Handled judge(End& end, const Datagram& datagram, bool right) {
    judge_.right = right;
    const wire::Segment segment{.datagram = datagram.bytes, .path = datagram.path};
    return end.engine.handle_batch(std::span(&segment, 1), judge_, now);
  }
  /// All at once.
  Handled judge(End& end, const std::vector<Datagram>& datagrams) {
    std::vector<wire::Segment> segments;
    for (const Datagram& datagram : datagrams)
      segments.push_back({.datagram = datagram.bytes, .path = datagram.path});
    return end.engine.handle_batch(segments, judge_, now);
  }
  /// The packets of a request of `a`'s for its first bytes.
  std::vector<Datagram> packets(SendOpcode opcode) {
    EXPECT_TRUE(a.send({.id = 1,
                        .opcode = opcode,
                        .signaled = true,
                        .remote_address = b.address(0),
                        .rkey = b.key},
                       {a.piece(0, kLength)}, now));
    return collect(a);
  }
  static bool all(const End& end, std::size_t from, std::size_t size, std::byte value) {
    return std::ranges::count(std::span(end.memory).subspan(from, size), value) ==
           static_cast<std::ptrdiff_t>(size);
  }
  /// Each of four packets comes wrong, and then right.
  void expect_harmless(End& end, const std::vector<Datagram>& packets) {
    ASSERT_EQ(packets.size(), 4U);
    for (std::size_t i = 0; i < packets.size(); ++i) {
      const auto before = end.memory;
      const std::uint64_t received = end.engine.counters().packets_received;
      EXPECT_EQ(judge(end, packets[i], false).bad, 1U);
      EXPECT_EQ(end.engine.counters().packets_received, received);
      const bool middle = i == 1 || i == 2;
      EXPECT_EQ(all(end, i * kMtu, kMtu, kSent), middle) << i;
      if (!middle) {
        EXPECT_EQ(end.memory, before) << i;
      }
      EXPECT_EQ(judge(end, packets[i], true).useful, 1U);
    }
    EXPECT_TRUE(all(end, 0, kLength, kSent));
    EXPECT_EQ(judge_.copied, 4);
    EXPECT_EQ(judge_.asked, 4);
  }

  Judge judge_;
};

TEST_F(Placing, MiddlesOfAWriteAreAndAWrongOneChangesNothingElse) {
  expect_harmless(b, packets(SendOpcode::kWrite));
  EXPECT_TRUE(exchange());
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

TEST_F(Placing, MiddlesOfASendAre) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, kLength)}, now));
  expect_harmless(b, packets(SendOpcode::kSend));
  EXPECT_EQ(b.received.take().byte_count, kLength);
}

TEST_F(Placing, MiddlesOfAReadAre) {
  std::fill_n(b.memory.begin(), kLength, kSent);
  std::ranges::fill(a.memory, std::byte{0});
  for (const Datagram& request : packets(SendOpcode::kRead)) deliver(b, request);
  expect_harmless(a, collect(b));
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

TEST_F(Placing, NotAcrossPieces) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, 1500), b.piece(2000, kLength - 1500)}, now));
  for (const Datagram& packet : packets(SendOpcode::kSend)) judge(b, packet, true);
  EXPECT_EQ(judge_.copied, 1);  // the second middle lies in the second piece
  EXPECT_TRUE(all(b, 0, 1500, kSent));
  EXPECT_TRUE(all(b, 2000, kLength - 1500, kSent));
}

TEST_F(Placing, NotOutOfOrderNorAgain) {
  const auto sent = packets(SendOpcode::kWrite);
  judge(b, sent[0], true);
  judge(b, sent[2], false);
  EXPECT_EQ(judge_.copied, 0);
  judge(b, sent[1], true);
  EXPECT_EQ(judge_.copied, 1);
  judge(b, sent[1], false);
  EXPECT_EQ(judge_.copied, 1);
  EXPECT_TRUE(all(b, 2 * kMtu, kMtu, std::byte{0}));
}

TEST_F(Placing, NotWithoutTheMessagesBeginning) {
  const auto sent = packets(SendOpcode::kWrite);
  judge(b, sent[1], false);
  EXPECT_EQ(judge_.copied, 0);
  EXPECT_TRUE(all(b, 0, kLength, std::byte{0}));
}

TEST_F(Placing, NotForStrangers) {
  const auto sent = packets(SendOpcode::kWrite);
  judge(b, sent[0], true);
  Datagram stranger = sent[1];
  stranger.path.source = wire::Address::from_ipv4(0x7F000009);
  judge(b, stranger, false);
  EXPECT_EQ(judge_.copied, 0);
  EXPECT_TRUE(all(b, kMtu, kMtu, std::byte{0}));
}

TEST_F(Placing, NotWhenTheKeyIsGone) {
  const auto sent = packets(SendOpcode::kWrite);
  judge(b, sent[0], true);
  ASSERT_TRUE(b.keys.erase(b.key));
  judge(b, sent[1], true);
  EXPECT_EQ(judge_.copied, 0);
  EXPECT_EQ(b.engine.state(*b.qp), QpState::kErr);
}

// --- Rows

TEST_F(Placing, ARowIs) {
  const Handled handled = judge(b, packets(SendOpcode::kWrite));
  EXPECT_EQ(handled.useful, 4U);
  EXPECT_EQ(handled.taken, 4U);
  EXPECT_EQ(handled.bad, 0U);
  EXPECT_EQ(judge_.copied, 2);
  EXPECT_EQ(b.engine.counters().packets_received, 4U);
  EXPECT_EQ(b.engine.counters().bytes_received, kLength);
  EXPECT_TRUE(all(b, 0, kLength, kSent));
  EXPECT_TRUE(exchange());
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

TEST_F(Placing, ARowOfAReadIs) {
  std::fill_n(b.memory.begin(), kLength, kSent);
  std::ranges::fill(a.memory, std::byte{0});
  for (const Datagram& request : packets(SendOpcode::kRead)) deliver(b, request);
  EXPECT_EQ(judge(a, collect(b)).useful, 4U);
  EXPECT_EQ(judge_.copied, 2);
  EXPECT_TRUE(all(a, 0, kLength, kSent));
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
}

TEST_F(Placing, ARowEndsWithAWrongPacket) {
  judge_.wrong_copy = 2;
  const auto sent = packets(SendOpcode::kWrite);
  const Handled handled = judge(b, sent);
  EXPECT_EQ(handled.bad, 1U);
  EXPECT_EQ(b.engine.counters().packets_received, 3U);
  EXPECT_EQ(b.engine.counters().bytes_received, 2 * kMtu);
  EXPECT_EQ(b.engine.counters().out_of_sequence, 1U);  // the last one
  judge_.wrong_copy = 0;
  EXPECT_EQ(judge(b, {sent[2], sent[3]}).useful, 2U);
  EXPECT_TRUE(all(b, 0, kLength, kSent));
}

TEST_F(Placing, ARowEndsWithAnythingElse) {
  const auto sent = packets(SendOpcode::kWrite);
  Datagram stranger = sent[2];
  stranger.path.source = wire::Address::from_ipv4(0x7F000009);
  const Handled handled = judge(b, {sent[0], sent[1], sent[1], stranger, sent[2], sent[3]});
  EXPECT_EQ(handled.useful, 4U);
  EXPECT_EQ(b.engine.counters().duplicates, 1U);
  EXPECT_EQ(b.engine.counters().wrong_source, 1U);
  EXPECT_TRUE(all(b, 0, kLength, kSent));
}

TEST_F(Placing, ARowIsNotAcrossPieces) {
  ASSERT_TRUE(b.receive(4, {b.piece(0, 2500), b.piece(3000, kLength - 2500)}, now));
  EXPECT_EQ(judge(b, packets(SendOpcode::kSend)).useful, 4U);
  EXPECT_EQ(judge_.copied, 1);
  EXPECT_TRUE(all(b, 0, 2500, kSent));
  EXPECT_TRUE(all(b, 3000, kLength - 2500, kSent));
}

}  // namespace
}  // namespace verbena::engine::testing
