// SPDX-License-Identifier: Apache-2.0
//
// FLUSH (Annex A19), both halves: no data, rights of its own, a response of its own.
#include <gtest/gtest.h>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

using wire::Aeth;
using wire::Feth;
using wire::NakCode;
using wire::Opcode;

constexpr std::uint32_t kAccess = kRemoteWrite | kRemoteRead | kRemoteAtomic | kFlushGlobal;
constexpr std::size_t kFirst = 4096;
constexpr std::size_t kLength = 8192;

class FlushTest : public EngineTest {
 protected:
  FlushTest() {
    flushable = b.keys
                    .insert({.base = b.memory.data() + kFirst,
                             .address = b.address(kFirst),
                             .length = kLength,
                             .access = kFlushGlobal,
                             .pd = End::kPd})
                    .value();
  }

  [[nodiscard]] SendRequest request(std::uint64_t id = 1) const {
    return {.id = id,
            .opcode = SendOpcode::kFlush,
            .signaled = true,
            .remote_address = b.address(kFirst),
            .rkey = flushable,
            .flush = {.length = kLength, .placement = Feth::kGlobalVisibility}};
  }
  /// A packet from `a` to `b`, and what is answered.
  std::vector<wire::Packet> ask(std::uint32_t psn,
                                const std::function<void(wire::Packet&)>& change = {}) {
    wire::Packet packet;
    packet.bth.opcode = Opcode::kRcFlush;
    packet.bth.destination_qp = b.qpn;
    packet.bth.psn = psn;
    packet.bth.ack_request = true;
    packet.feth.placement = Feth::kGlobalVisibility;
    packet.reth = {.address = b.address(kFirst), .rkey = flushable, .dma_length = kLength};
    if (change) change(packet);
    Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                      .path = {.source = a.source, .destination = b.source}};
    wire::encode(packet, datagram.bytes);
    deliver(b, datagram);
    kept_ = collect(b);
    std::vector<wire::Packet> answers;
    for (const Datagram& answer : kept_) answers.push_back(answer.packet());
    return answers;
  }
  static void expect_response(const std::vector<wire::Packet>& answers, std::uint32_t psn) {
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].bth.opcode, Opcode::kRcReadResponseOnly);
    EXPECT_EQ(answers[0].bth.psn, psn);
    EXPECT_TRUE(answers[0].payload.empty());
  }
  static void expect_nak(const std::vector<wire::Packet>& answers, NakCode code) {
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].aeth.kind, Aeth::Kind::kNak);
    EXPECT_EQ(answers[0].aeth.value, static_cast<std::uint8_t>(code));
  }

  std::uint32_t flushable = 0;

 private:
  std::vector<Datagram> kept_;
};

TEST_F(FlushTest, CompletesBehindTheWritesBeforeIt) {
  connect({.access = kAccess});
  std::vector<wire::Packet> seen;
  filter = [&](const Datagram& datagram, bool to_b) {
    if (to_b) seen.push_back(datagram.packet());
    return true;
  };
  fill(a, 0, 3000, 5);
  SendRequest write = request(1);
  write.opcode = SendOpcode::kWrite;
  write.rkey = b.key;
  ASSERT_TRUE(a.send(write, {a.piece(0, 3000)}, now));
  ASSERT_TRUE(a.send(request(2), {}, now));
  settle();
  EXPECT_EQ(a.sent.take().opcode, CompletionOpcode::kWrite);
  const Completion done = a.sent.take();
  EXPECT_EQ(done.id, 2u);
  EXPECT_EQ(done.status, Status::kSuccess);
  EXPECT_EQ(done.opcode, CompletionOpcode::kFlush);
  EXPECT_TRUE(same(a, 0, b, kFirst, 3000));
  ASSERT_EQ(seen.size(), 4u);
  const wire::Packet& flush = seen.back();
  EXPECT_EQ(flush.bth.opcode, Opcode::kRcFlush);
  EXPECT_TRUE(flush.bth.ack_request);
  EXPECT_EQ(flush.feth, (Feth{.placement = Feth::kGlobalVisibility}));
  EXPECT_EQ(flush.reth,
            (wire::Reth{.address = b.address(kFirst), .rkey = flushable, .dma_length = kLength}));
}

TEST_F(FlushTest, CarriesNoData) {
  connect({.access = kAccess});
  ASSERT_TRUE(a.send(request(), {a.piece(0, 8)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kLocalLengthError);
}

TEST_F(FlushTest, IsSentAgainUntilItsOwnResponseComes) {
  connect({.rd_atomic = 2, .access = kAccess});
  int lost = 0;
  filter = [&](const Datagram& datagram, bool to_b) {
    if (to_b || datagram.packet().bth.opcode != Opcode::kRcReadResponseOnly || lost == 2)
      return true;
    ++lost;
    return false;
  };
  ASSERT_TRUE(a.send(request(), {}, now));
  SendRequest write = request(2);
  write.opcode = SendOpcode::kWrite;
  write.rkey = b.key;
  ASSERT_TRUE(a.send(write, {a.piece(0, 8)}, now));
  settle();
  EXPECT_EQ(lost, 2);
  EXPECT_EQ(a.sent.take().id, 1u);
  EXPECT_EQ(a.sent.take().id, 2u);
}

TEST_F(FlushTest, NoMoreAreUnderWayThanAgreed) {
  connect({.rd_atomic = 2, .access = kAccess});
  for (std::uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(a.send(request(id), {}, now));
  EXPECT_EQ(collect(a).size(), 2u);
  settle();
  for (std::uint64_t id = 1; id <= 5; ++id) EXPECT_EQ(a.sent.take().id, id);
}

TEST_F(FlushTest, DuplicatesAreAnsweredAgain) {
  connect({.rd_atomic = 2, .access = kAccess});
  expect_response(ask(100), 100);
  expect_response(ask(101), 101);
  expect_response(ask(100), 100);
  expect_response(ask(102), 102);
  EXPECT_TRUE(ask(100).empty()) << "only max_dest_rd_atomic answers are kept";
}

TEST_F(FlushTest, OfAllOfTheRegionNeedsNoRange) {
  connect({.access = kAccess});
  const auto nowhere = [](wire::Packet& packet) {
    packet.feth.selectivity = Feth::kRegion;
    packet.reth.address = 0;
    packet.reth.dma_length = 0xFFFFFFFF;
  };
  expect_response(ask(100, nowhere), 100);
  expect_nak(ask(101,
                 [&](wire::Packet& packet) {
                   nowhere(packet);
                   packet.reth.rkey = b.key;
                 }),
             NakCode::kRemoteAccessError);
}

TEST_F(FlushTest, BeyondTheRegionIsAnAccessError) {
  connect({.access = kAccess});
  expect_nak(ask(100, [](auto& packet) { ++packet.reth.dma_length; }), NakCode::kRemoteAccessError);
}

TEST_F(FlushTest, OfARegionWithoutTheRightIsAnAccessError) {
  connect({.access = kAccess});
  expect_nak(ask(100, [&](auto& packet) { packet.reth.rkey = b.key; }),
             NakCode::kRemoteAccessError);
}

TEST_F(FlushTest, WithoutTheQueuePairsRightIsInvalid) {
  connect();
  expect_nak(ask(100), NakCode::kInvalidRequest);
}

TEST_F(FlushTest, WithoutRoomForAnswersIsInvalid) {
  connect({.rd_atomic = 0, .access = kAccess});
  expect_nak(ask(100), NakCode::kInvalidRequest);
}

TEST_F(FlushTest, ToPersistenceIsRefused) {
  connect({.access = kAccess});
  expect_nak(ask(100, [](auto& packet) { packet.feth.placement |= Feth::kPersistence; }),
             NakCode::kInvalidRequest);
}

/// Of the queue pair the program may ask for anything; no region can have the right.
TEST_F(FlushTest, ToPersistenceIsRefusedByTheRegion) {
  connect({.access = kAccess | kFlushPersistent});
  expect_nak(ask(100, [](auto& packet) { packet.feth.placement = Feth::kPersistence; }),
             NakCode::kRemoteAccessError);
}

class ReservedBits : public FlushTest, public ::testing::WithParamInterface<Feth> {};

TEST_P(ReservedBits, AreInvalid) {
  connect({.access = kAccess | kFlushPersistent});
  expect_nak(ask(100, [](auto& packet) { packet.feth = GetParam(); }), NakCode::kInvalidRequest);
}
INSTANTIATE_TEST_SUITE_P(
    All, ReservedBits,
    ::testing::Values(Feth{.placement = 0}, Feth{.placement = 4}, Feth{.placement = 9},
                      Feth{.selectivity = 2, .placement = Feth::kGlobalVisibility},
                      Feth{.selectivity = 3, .placement = Feth::kGlobalVisibility}));

}  // namespace
}  // namespace verbena::engine::testing
