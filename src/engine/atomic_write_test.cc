// SPDX-License-Identifier: Apache-2.0
//
// ATOMIC WRITE (Annex A19), both halves: eight bytes at once, answered by a response of its own.
#include <gtest/gtest.h>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

using wire::Aeth;
using wire::NakCode;
using wire::Opcode;

class AtomicWrite : public EngineTest {
 protected:
  [[nodiscard]] SendRequest request(std::uint64_t word, std::uint64_t id = 1,
                                    std::size_t offset = 64) const {
    return {.id = id,
            .opcode = SendOpcode::kAtomicWrite,
            .signaled = true,
            .remote_address = b.address(offset),
            .rkey = b.key,
            .swap = word};
  }
  [[nodiscard]] std::uint64_t word(std::size_t offset = 64) const {
    std::uint64_t value = 0;
    std::memcpy(&value, b.memory.data() + offset, sizeof value);
    return value;
  }
  /// A packet from `a` to `b`, and what is answered.
  std::vector<wire::Packet> ask(std::uint32_t psn, std::uint64_t value,
                                const std::function<void(wire::Packet&)>& change = {}) {
    wire::Packet packet;
    packet.bth.opcode = Opcode::kRcAtomicWrite;
    packet.bth.destination_qp = b.qpn;
    packet.bth.psn = psn;
    packet.bth.ack_request = true;
    packet.reth = {.address = b.address(64), .rkey = b.key, .dma_length = 8};
    packet.payload = std::as_bytes(std::span(&value, 1));
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
  void expect_response(const std::vector<wire::Packet>& answers, std::uint32_t psn) {
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].bth.opcode, Opcode::kRcReadResponseOnly);
    EXPECT_EQ(answers[0].bth.psn, psn);
    EXPECT_TRUE(answers[0].payload.empty());
  }
  void expect_nak(const std::vector<wire::Packet>& answers, NakCode code) {
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].aeth.kind, Aeth::Kind::kNak);
    EXPECT_EQ(answers[0].aeth.value, static_cast<std::uint8_t>(code));
    EXPECT_EQ(word(), 0u);
  }

 private:
  std::vector<Datagram> kept_;
};

TEST_F(AtomicWrite, OfTheRequestsOwnBytesOrOfMemory) {
  connect();
  ASSERT_TRUE(a.send(request(0x0102030405060708), {}, now));
  settle();
  const Completion done = a.sent.take();
  EXPECT_EQ(done.status, Status::kSuccess);
  EXPECT_EQ(done.opcode, CompletionOpcode::kAtomicWrite);
  EXPECT_EQ(word(), 0x0102030405060708u);
  fill(a, 0, 8, 3);
  ASSERT_TRUE(a.send(request(0, 2), {a.piece(0, 3), a.piece(3, 5)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kSuccess);
  EXPECT_TRUE(same(a, 0, b, 64, 8));
  ASSERT_TRUE(a.send(request(0, 3), {a.piece(0, 9)}, now));
  settle();
  EXPECT_EQ(a.sent.take().status, Status::kLocalLengthError);
}

TEST_F(AtomicWrite, IsSentAgainUntilItsOwnResponseComes) {
  connect({.rd_atomic = 2});
  int lost = 0;
  // The first two responses of b are lost; the WRITE behind is acknowledged.
  filter = [&](const Datagram& datagram, bool to_b) {
    if (to_b || datagram.packet().bth.opcode != Opcode::kRcReadResponseOnly || lost == 2)
      return true;
    ++lost;
    return false;
  };
  ASSERT_TRUE(a.send(request(7), {}, now));
  SendRequest write = request(0, 2, 128);
  write.opcode = SendOpcode::kWrite;
  ASSERT_TRUE(a.send(write, {a.piece(0, 8)}, now));
  settle();
  EXPECT_EQ(lost, 2);
  EXPECT_EQ(a.sent.take().id, 1u);
  EXPECT_EQ(a.sent.take().id, 2u);
  EXPECT_EQ(word(), 7u);
}

TEST_F(AtomicWrite, NoMoreAreUnderWayThanAgreed) {
  connect({.rd_atomic = 2});
  for (std::uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(a.send(request(id, id), {}, now));
  EXPECT_EQ(collect(a).size(), 2u);
  settle();
  for (std::uint64_t id = 1; id <= 5; ++id) EXPECT_EQ(a.sent.take().id, id);
  EXPECT_EQ(word(), 5u);
}

TEST_F(AtomicWrite, DuplicatesAreAnsweredAgainAndNotExecuted) {
  connect({.rd_atomic = 2});
  expect_response(ask(100, 1), 100);
  expect_response(ask(101, 2), 101);
  expect_response(ask(100, 1), 100);
  EXPECT_EQ(word(), 2u);
  expect_response(ask(102, 3), 102);
  EXPECT_TRUE(ask(100, 1).empty()) << "only max_dest_rd_atomic answers are kept";
}

TEST_F(AtomicWrite, OfAnotherSizeIsInvalid) {
  connect();
  const std::uint64_t words[2] = {1, 2};
  expect_nak(ask(100, 1, [&](auto& packet) { packet.payload = std::as_bytes(std::span(words)); }),
             NakCode::kInvalidRequest);
}

TEST_F(AtomicWrite, OfAnotherDmaLengthIsInvalid) {
  connect();
  expect_nak(ask(100, 1, [](auto& packet) { packet.reth.dma_length = 16; }),
             NakCode::kInvalidRequest);
}

TEST_F(AtomicWrite, ToAnUnalignedAddressIsInvalid) {
  connect();
  expect_nak(ask(100, 1, [](auto& packet) { packet.reth.address += 4; }), NakCode::kInvalidRequest);
}

TEST_F(AtomicWrite, WithoutTheRightIsInvalid) {
  connect({.access = kRemoteRead | kRemoteAtomic});
  expect_nak(ask(100, 1), NakCode::kInvalidRequest);
}

TEST_F(AtomicWrite, BeyondTheRegionIsAnAccessError) {
  connect();
  expect_nak(ask(100, 1, [&](auto& packet) { packet.reth.address = b.address(b.memory.size()); }),
             NakCode::kRemoteAccessError);
}

TEST_F(AtomicWrite, AResponseWithDataIsABadOne) {
  connect();
  ASSERT_TRUE(a.send(request(7), {}, now));
  ASSERT_EQ(collect(a).size(), 1u);
  const std::uint64_t data = 9;
  wire::Packet packet;
  packet.bth.opcode = Opcode::kRcReadResponseOnly;
  packet.bth.destination_qp = a.qpn;
  packet.bth.psn = 100;
  packet.payload = std::as_bytes(std::span(&data, 1));
  Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                    .path = {.source = b.source, .destination = a.source}};
  wire::encode(packet, datagram.bytes);
  deliver(a, datagram);
  EXPECT_EQ(a.sent.take().status, Status::kBadResponseError);
}

}  // namespace
}  // namespace verbena::engine::testing
