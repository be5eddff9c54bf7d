// SPDX-License-Identifier: Apache-2.0
//
// Messages of one packet that come together: what is alike among them is executed in short, and
// nothing tells that from one packet at a time, but where a completion queue overflows.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>
#include <vector>

#include "engine/test_network.h"
#include "wire/icrc_verifier.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint32_t kSize = 64;

/// Finds some of the segments wrong, by their position in the batch.
class Picky final : public wire::IcrcVerifier {
 public:
  explicit Picky(std::set<std::uint16_t> wrong) : wrong_(std::move(wrong)) {}
  bool holds(const wire::Segment& segment) override { return !wrong_.contains(segment.position); }
  bool holds_copied(const wire::Segment& segment, std::size_t, std::byte*) override {
    return holds(segment);
  }

 private:
  std::set<std::uint16_t> wrong_;
};

class ReceiveRows : public EngineTest {
 protected:
  void post_receives(std::uint64_t first, std::uint32_t count) {
    for (std::uint64_t id = first; id < first + count; ++id)
      ASSERT_TRUE(b.receive(id, {b.piece(id * kSize, kSize)}, now));
  }
  void post_sends(std::uint64_t first, std::uint32_t count) {
    for (std::uint64_t id = first; id < first + count; ++id) {
      const Sge piece = a.piece(id * kSize, kSize);
      ASSERT_TRUE(a.sends.post({.id = id,
                                .opcode = SendOpcode::kSend,
                                .signaled = true,
                                .pieces = std::span(&piece, 1)}));
    }
    a.engine.posted(*a.qp, now);
  }
  void post_writes(std::uint32_t count) {
    for (std::uint64_t id = 0; id < count; ++id) {
      const Sge piece = a.piece(id * kSize, kSize);
      ASSERT_TRUE(a.sends.post({.id = id,
                                .opcode = SendOpcode::kWrite,
                                .signaled = true,
                                .remote_address = b.address(id * kSize),
                                .rkey = b.key,
                                .pieces = std::span(&piece, 1)}));
    }
    a.engine.posted(*a.qp, now);
  }
  /// The packets of eight SENDs, of which the fourth and the last ask for an acknowledgement.
  std::vector<Datagram> two_lists() {
    post_sends(0, 4);
    std::vector<Datagram> packets = collect(a);
    post_sends(4, 4);
    for (Datagram& packet : collect(a)) packets.push_back(std::move(packet));
    return packets;
  }
  /// Together, as the link would.
  Handled deliver_all(const std::vector<Datagram>& packets, std::set<std::uint16_t> wrong = {}) {
    std::vector<wire::Segment> segments;
    for (const Datagram& packet : packets) {
      segments.push_back({.datagram = packet.bytes,
                          .path = packet.path,
                          .position = static_cast<std::uint16_t>(segments.size())});
    }
    Picky verifier(std::move(wrong));
    return b.engine.handle_batch(segments, verifier, now);
  }
  void expect_received(std::uint64_t first, std::uint32_t count) {
    for (std::uint64_t id = first; id < first + count; ++id) {
      const Completion completion = b.received.take();
      EXPECT_EQ(completion.id, id);
      EXPECT_EQ(completion.status, Status::kSuccess);
      EXPECT_EQ(completion.opcode, CompletionOpcode::kReceive);
      EXPECT_EQ(completion.byte_count, kSize);
      EXPECT_EQ(completion.qp_number, b.qpn);
      EXPECT_EQ(completion.source_qp, a.qpn);
    }
  }
  /// The one acknowledgement that the receiver sends.
  wire::Packet answer() {
    const auto answers = collect(b);
    EXPECT_EQ(answers.size(), 1u);
    if (answers.empty()) return {};
    deliver(a, answers.front());
    return answers.front().packet();
  }
};

TEST_F(ReceiveRows, EachSendHasItsReceiveAndAllOneAcknowledgement) {
  connect();
  fill(a, 0, 12 * kSize, 3);
  post_receives(0, 12);
  post_sends(0, 12);
  const Handled handled = deliver_all(collect(a));
  EXPECT_EQ(handled.taken, 12u);
  EXPECT_EQ(handled.useful, 12u);
  EXPECT_EQ(handled.bad, 0u);
  expect_received(0, 12);
  EXPECT_TRUE(same(a, 0, b, 0, 12 * kSize));
  for (const Counters* counters :
       std::array<const Counters*, 2>{&b.counters, &b.engine.counters(*b.qp)}) {
    EXPECT_EQ(std::uint64_t{counters->packets_received}, 12u);
    EXPECT_EQ(std::uint64_t{counters->bytes_received}, 12u * kSize);
    EXPECT_EQ(std::uint64_t{counters->receives_completed}, 12u);
  }
  const wire::Packet acknowledgement = answer();
  EXPECT_EQ(acknowledgement.bth.psn, 111u);
  EXPECT_EQ(acknowledgement.aeth.msn, 12u);
  EXPECT_EQ(a.sent.completions.size(), 12u);
}

TEST_F(ReceiveRows, WritesGoWhereTheySay) {
  connect();
  fill(a, 0, 8 * kSize, 3);
  post_writes(8);
  EXPECT_EQ(deliver_all(collect(a)).taken, 8u);
  EXPECT_TRUE(same(a, 0, b, 0, 8 * kSize));
  EXPECT_TRUE(b.received.completions.empty());
  EXPECT_EQ(std::uint64_t{b.counters.bytes_received}, 8u * kSize);
  EXPECT_EQ(answer().aeth.msn, 8u);
}

TEST_F(ReceiveRows, OneInTheMiddleAsksForThoseUpToIt) {
  connect();
  post_receives(0, 8);
  std::vector<Datagram> packets = two_lists();
  ASSERT_EQ(packets.size(), 8u);
  packets.resize(6);  // the two that ask no more are lost
  EXPECT_EQ(deliver_all(packets).taken, 6u);
  expect_received(0, 6);
  answer();
  EXPECT_GE(a.sent.completions.size(), 4u);
}

TEST_F(ReceiveRows, AGapEndsIt) {
  connect();
  fill(a, 0, 8 * kSize, 3);
  post_receives(0, 8);
  post_sends(0, 8);
  std::vector<Datagram> packets = collect(a);
  packets.erase(packets.begin() + 3);
  EXPECT_EQ(deliver_all(packets).taken, 7u);
  expect_received(0, 3);
  EXPECT_TRUE(b.received.completions.empty());
  EXPECT_EQ(b.qp->responder().expected_psn(), 103u);
  settle();
  expect_received(3, 5);
  EXPECT_TRUE(same(a, 0, b, 0, 8 * kSize));
  EXPECT_EQ(a.sent.completions.size(), 8u);
}

TEST_F(ReceiveRows, WhatIsDamagedIsAGap) {
  connect();
  post_receives(0, 8);
  post_sends(0, 8);
  const Handled handled = deliver_all(collect(a), {5});
  EXPECT_EQ(handled.bad, 1u);
  EXPECT_EQ(handled.taken, 7u);
  expect_received(0, 5);
  EXPECT_TRUE(b.received.completions.empty());
  EXPECT_EQ(b.qp->responder().expected_psn(), 105u);
  settle();
  expect_received(5, 3);
}

TEST_F(ReceiveRows, PsnsBeginAnew) {
  connect({.psn = wire::kMask24 - 2});
  post_receives(0, 8);
  post_sends(0, 8);
  EXPECT_EQ(deliver_all(collect(a)).taken, 8u);
  expect_received(0, 8);
  EXPECT_EQ(answer().bth.psn, 4u);
  EXPECT_EQ(a.sent.completions.size(), 8u);
}

TEST_F(ReceiveRows, WhatIsAskedForInItGoesBeforeARefusalBehindIt) {
  connect();
  post_receives(0, 6);
  std::vector<Datagram> packets = two_lists();
  deliver_all(packets);
  expect_received(0, 6);
  const auto answers = collect(b);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].packet().aeth.kind, wire::Aeth::Kind::kAck);
  EXPECT_EQ(answers[1].packet().aeth.kind, wire::Aeth::Kind::kRnrNak);
  EXPECT_EQ(answers[1].packet().bth.psn, 106u);
}

TEST_F(ReceiveRows, WithoutAReceiveTheRestIsAskedForLater) {
  connect();
  post_receives(0, 5);
  post_sends(0, 8);
  deliver_all(collect(a));
  expect_received(0, 5);
  const wire::Packet refusal = answer();
  EXPECT_EQ(refusal.aeth.kind, wire::Aeth::Kind::kRnrNak);
  EXPECT_EQ(refusal.bth.psn, 105u);
  post_receives(5, 3);
  settle();
  expect_received(5, 3);
  EXPECT_EQ(a.sent.completions.size(), 8u);
}

TEST_F(ReceiveRows, ImmediatesAreEachTheirOwn) {
  connect();
  post_receives(0, 6);
  for (std::uint32_t i = 0; i < 6; ++i) {
    const Sge piece = a.piece(0, kSize);
    ASSERT_TRUE(a.sends.post({.id = i,
                              .opcode = SendOpcode::kSendWithImm,
                              .immediate = 70 + i,
                              .pieces = std::span(&piece, 1)}));
  }
  a.engine.posted(*a.qp, now);
  deliver_all(collect(a));
  for (std::uint32_t i = 0; i < 6; ++i) {
    const Completion completion = b.received.take();
    EXPECT_TRUE(completion.with_immediate);
    EXPECT_EQ(completion.immediate_or_key, 70 + i);
  }
}

TEST_F(ReceiveRows, ACompletionQueueThatIsFullEndsTheQueuePair) {
  connect();
  b.received.limit = 4;
  post_receives(0, 8);
  post_sends(0, 8);
  deliver_all(collect(a));
  EXPECT_EQ(b.qp->state(), QpState::kErr);
  expect_received(0, 4);
  EXPECT_EQ(std::uint64_t{b.counters.receives_completed}, 4u) << "the first by itself";
  EXPECT_TRUE(collect(b).empty()) << "what it could not tell it does not acknowledge";
}

TEST_F(ReceiveRows, AWrongKeyIsRefusedInItsTurn) {
  connect();
  fill(a, 0, 8 * kSize, 3);
  post_writes(8);
  const std::uint32_t good = b.key;
  std::vector<Datagram> packets = collect(a);
  wire::Packet wrong = packets[4].packet();
  wrong.reth.rkey = good ^ 0x100;
  wire::encode(wrong, packets[4].bytes);
  deliver_all(packets);
  EXPECT_TRUE(same(a, 0, b, 0, 4 * kSize));
  EXPECT_FALSE(same(a, 4 * kSize, b, 4 * kSize, kSize));
  EXPECT_FALSE(same(a, 5 * kSize, b, 5 * kSize, kSize)) << "what came behind it";
  EXPECT_EQ(b.qp->state(), QpState::kErr);
  const auto answers = collect(b);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.back().packet().bth.psn, 104u);
  EXPECT_EQ(answers.back().packet().aeth.kind, wire::Aeth::Kind::kNak);
}

TEST_F(ReceiveRows, MoreThanOneRowHoldsAreTaken) {
  constexpr std::uint32_t kMany = 128;
  connect();
  post_receives(0, kMany);
  post_sends(0, 1);
  std::vector<Datagram> packets = collect(a);
  ASSERT_EQ(packets.size(), 1u);
  while (packets.size() < kMany) {
    wire::Packet next = packets.back().packet();
    ++next.bth.psn;
    packets.push_back(packets.back());
    wire::encode(next, packets.back().bytes);
  }
  const Handled handled = deliver_all(packets);
  EXPECT_EQ(handled.taken, kMany);
  EXPECT_EQ(handled.useful, kMany);
  expect_received(0, kMany);
  EXPECT_EQ(b.qp->responder().expected_psn(), 100 + kMany);
  EXPECT_EQ(b.qp->responder().msn(), kMany);
  EXPECT_EQ(std::uint64_t{b.engine.counters(*b.qp).packets_received}, kMany);
}

}  // namespace
}  // namespace verbena::engine::testing
