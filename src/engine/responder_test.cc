// SPDX-License-Identifier: Apache-2.0
#include "engine/responder.h"

#include <gtest/gtest.h>

#include "engine/psn.h"
#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

using wire::Aeth;
using wire::NakCode;
using wire::Opcode;

/// Packets made by hand for `b`, whose expected PSN is 100.
class Answers : public EngineTest {
 protected:
  wire::Packet request(Opcode opcode, std::uint32_t psn, std::size_t payload = 0) {
    wire::Packet packet;
    packet.bth.opcode = opcode;
    packet.bth.destination_qp = b.qpn;
    packet.bth.psn = psn;
    packet.bth.ack_request = true;
    packet.bth.pad_count = static_cast<std::uint8_t>(-payload & 3);
    packet.reth = {
        .address = b.address(0), .rkey = b.key, .dma_length = static_cast<std::uint32_t>(payload)};
    packet.atomic_eth = {.address = b.address(0), .rkey = b.key, .swap_or_add = 5, .compare = 0};
    data_.assign(payload, std::byte{0x5A});
    packet.payload = data_;
    return packet;
  }

  /// A packet on its way from `a` to `b`.
  Datagram on_the_way(const wire::Packet& packet) {
    Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                      .path = {.source = a.source, .destination = b.source}};
    wire::encode(packet, datagram.bytes);
    return datagram;
  }
  Datagram write_only(std::uint32_t psn) {
    return on_the_way(request(Opcode::kRcWriteOnly, psn, 8));
  }

  /// Delivers and returns what `b` answers.
  std::vector<wire::Packet> ask(const wire::Packet& packet) {
    deliver(b, on_the_way(packet));
    kept_ = collect(b);
    std::vector<wire::Packet> answers;
    for (const Datagram& answer : kept_) answers.push_back(answer.packet());
    return answers;
  }

  void expect_answer(const std::vector<wire::Packet>& answers, Aeth::Kind kind, std::uint8_t value,
                     std::uint32_t psn) {
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].bth.opcode, Opcode::kRcAcknowledge);
    EXPECT_EQ(answers[0].aeth.kind, kind);
    EXPECT_EQ(answers[0].aeth.value, value);
    EXPECT_EQ(answers[0].bth.psn, psn);
  }
  void expect_ack(const std::vector<wire::Packet>& answers, std::uint32_t psn) {
    expect_answer(answers, Aeth::Kind::kAck, Aeth::kNoCredits, psn);
  }
  void expect_nak(const std::vector<wire::Packet>& answers, NakCode code, std::uint32_t psn) {
    expect_answer(answers, Aeth::Kind::kNak, static_cast<std::uint8_t>(code), psn);
  }
  [[nodiscard]] std::uint64_t word() const {
    std::uint64_t value = 0;
    std::memcpy(&value, b.memory.data(), sizeof value);
    return value;
  }

 private:
  std::vector<std::byte> data_;
  std::vector<Datagram> kept_;
};

TEST_F(Answers, AReceiveThatAnImmediateHasTakenEndsWithAnErrorOfItsOwn) {
  connect();
  ASSERT_TRUE(b.receive(7, {}, now));
  wire::Packet packet = request(Opcode::kRcWriteOnlyImm, 100, 8);
  packet.reth.rkey ^= 0x100;
  expect_nak(ask(packet), NakCode::kRemoteAccessError, 100);
  const Completion completion = b.received.take();
  EXPECT_EQ(completion.id, 7u);
  EXPECT_EQ(completion.status, Status::kLocalAccessError);
}

TEST_F(Answers, GapIsNakedOnceWithTheExpectedPsn) {
  connect();
  expect_nak(ask(request(Opcode::kRcWriteOnly, 103, 8)), NakCode::kSequenceError, 100);
  EXPECT_TRUE(ask(request(Opcode::kRcWriteOnly, 104, 8)).empty());
  EXPECT_EQ(word(), 0u);
  expect_ack(ask(request(Opcode::kRcWriteOnly, 100, 8)), 100);
  expect_nak(ask(request(Opcode::kRcWriteOnly, 103, 8)), NakCode::kSequenceError, 101);
}

TEST_F(Answers, DuplicatesAreAcknowledgedWhileTheGapLasts) {
  connect();
  expect_ack(ask(request(Opcode::kRcWriteOnly, 100, 8)), 100);
  b.memory[0] = std::byte{1};
  expect_nak(ask(request(Opcode::kRcWriteOnly, 102, 8)), NakCode::kSequenceError, 101);
  expect_ack(ask(request(Opcode::kRcWriteOnly, 100, 8)), 100);
  EXPECT_EQ(b.memory[0], std::byte{1}) << "a duplicate was executed";
}

TEST_F(Answers, MsnCountsMessagesAndNoDuplicates) {
  connect();
  EXPECT_EQ(ask(request(Opcode::kRcWriteOnly, 100, 8))[0].aeth.msn, 1u);
  EXPECT_EQ(ask(request(Opcode::kRcWriteOnly, 100, 8))[0].aeth.msn, 1u);
  EXPECT_EQ(ask(request(Opcode::kRcWriteOnly, 101, 8))[0].aeth.msn, 2u);
}

TEST_F(Answers, OpcodeSequence) {
  for (const Opcode out_of_place :
       {Opcode::kRcSendMiddle, Opcode::kRcSendLast, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast}) {
    End fresh{0x7F000002, 0x222};
    bring_up(fresh, a, {}, 0, 100);
    wire::Packet packet = request(out_of_place, 100, 1024);
    Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                      .path = {.source = a.source, .destination = fresh.source}};
    wire::encode(packet, datagram.bytes);
    deliver(fresh, datagram);
    const auto answers = collect(fresh);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].packet().aeth.value, static_cast<std::uint8_t>(NakCode::kInvalidRequest));
    EXPECT_EQ(fresh.engine.state(*fresh.qp), QpState::kErr);
  }
}

TEST_F(Answers, LengthsOfPackets) {
  struct Case {
    Opcode opcode;
    std::size_t payload;
  };
  for (const Case& wrong : {Case{Opcode::kRcWriteFirst, 1023}, Case{Opcode::kRcWriteOnly, 1025},
                            Case{Opcode::kRcWriteFirst, 1025}}) {
    End fresh{0x7F000002, 0x222};
    bring_up(fresh, a, {}, 0, 100);
    wire::Packet packet = request(wrong.opcode, 100, wrong.payload);
    packet.reth = {.address = fresh.address(0), .rkey = fresh.key, .dma_length = 4096};
    Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                      .path = {.source = a.source, .destination = fresh.source}};
    wire::encode(packet, datagram.bytes);
    deliver(fresh, datagram);
    const auto answers = collect(fresh);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].packet().aeth.value, static_cast<std::uint8_t>(NakCode::kInvalidRequest));
  }
}

TEST_F(Answers, KeysRangesAndRights) {
  struct Case {
    const char* name;
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint32_t length;
  };
  const std::uint64_t start = b.address(0);
  const Case cases[] = {
      {"unknown key", start, b.key ^ 0x100, 8},
      {"old generation", start, b.key ^ 1, 8},
      {"before the region", start - 1, b.key, 8},
      {"one byte beyond", start + End::kMemory - 7, b.key, 8},
      {"wraps around", ~std::uint64_t{0} - 3, b.key, 8},
      {"whole region and one byte", start, b.key, End::kMemory + 1},
  };
  for (const Case& test : cases) {
    End fresh{0x7F000002, 0x222};
    bring_up(fresh, a, {}, 0, 100);
    const std::uint64_t shift = fresh.address(0) - start;
    const std::uint32_t key_shift = b.key ^ fresh.key;
    wire::Packet packet = request(Opcode::kRcReadRequest, 100);
    packet.reth = {
        .address = test.address == ~std::uint64_t{0} - 3 ? test.address : test.address + shift,
        .rkey = test.rkey ^ key_shift,
        .dma_length = test.length};
    Datagram datagram{.bytes = std::vector<std::byte>(wire::encoded_size(packet)),
                      .path = {.source = a.source, .destination = fresh.source}};
    wire::encode(packet, datagram.bytes);
    deliver(fresh, datagram);
    const auto answers = collect(fresh);
    ASSERT_EQ(answers.size(), 1u) << test.name;
    EXPECT_EQ(answers[0].packet().bth.opcode, Opcode::kRcAcknowledge) << test.name;
    EXPECT_EQ(answers[0].packet().aeth.value,
              static_cast<std::uint8_t>(NakCode::kRemoteAccessError))
        << test.name;
  }
}

TEST_F(Answers, ZeroLengthSkipsTheKey) {
  connect();
  wire::Packet write = request(Opcode::kRcWriteOnly, 100);
  write.reth = {.address = 1, .rkey = 0xDEAD, .dma_length = 0};
  expect_ack(ask(write), 100);
  wire::Packet read = request(Opcode::kRcReadRequest, 101);
  read.reth = write.reth;
  const auto answers = ask(read);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].bth.opcode, Opcode::kRcReadResponseOnly);
}

TEST_F(Answers, QueuePairRights) {
  connect({.access = 0});
  expect_nak(ask(request(Opcode::kRcWriteOnly, 100, 8)), NakCode::kInvalidRequest, 100);
  EXPECT_EQ(b.engine.poll_event()->kind, EventKind::kRequestError);
}

TEST_F(Answers, AtomicsAreReplayedAndNeverExecutedAgain) {
  connect({.rd_atomic = 2});
  const auto first = ask(request(Opcode::kRcFetchAdd, 100));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].atomic_ack_eth.original, 0u);
  EXPECT_EQ(word(), 5u);
  static_cast<void>(ask(request(Opcode::kRcFetchAdd, 101)));
  EXPECT_EQ(word(), 10u);
  const auto again = ask(request(Opcode::kRcFetchAdd, 100));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].bth.psn, 100u);
  EXPECT_EQ(again[0].atomic_ack_eth.original, 0u);
  EXPECT_EQ(word(), 10u);
  static_cast<void>(ask(request(Opcode::kRcFetchAdd, 102)));
  EXPECT_TRUE(ask(request(Opcode::kRcFetchAdd, 100)).empty())
      << "only max_dest_rd_atomic results are kept";
  EXPECT_EQ(word(), 15u);
}

TEST_F(Answers, UnalignedAtomicIsInvalid) {
  connect();
  wire::Packet packet = request(Opcode::kRcFetchAdd, 100);
  packet.atomic_eth.address += 4;
  expect_nak(ask(packet), NakCode::kInvalidRequest, 100);
}

TEST_F(Answers, DuplicateReadMayAskForATail) {
  connect({.mtu = 256});
  fill(b, 0, 1024, 3);
  wire::Packet read = request(Opcode::kRcReadRequest, 100);
  read.reth.dma_length = 1024;
  EXPECT_EQ(ask(read).size(), 4u);
  wire::Packet tail = request(Opcode::kRcReadRequest, 102);
  tail.reth = {.address = b.address(512), .rkey = b.key, .dma_length = 512};
  const auto answers = ask(tail);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].bth.psn, 102u);
  EXPECT_EQ(answers[0].bth.opcode, Opcode::kRcReadResponseFirst);
  EXPECT_EQ(answers[0].payload[0], b.memory[512]);
  EXPECT_EQ(answers[1].bth.opcode, Opcode::kRcReadResponseLast);
  tail.bth.psn = 103;  // would end beyond what was asked for before
  EXPECT_TRUE(ask(tail).empty());
}

TEST_F(Answers, ReadThatIsRepeatedBeforeItsAnswerCountsOnce) {
  connect();
  for (const std::uint32_t psn : {100, 101, 100}) {
    wire::Packet read = request(Opcode::kRcReadRequest, psn);
    read.reth.dma_length = 8;
    deliver(b, on_the_way(read));
  }
  const auto answers = collect(b);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].packet().aeth.msn, 1u);
  EXPECT_EQ(answers[1].packet().aeth.msn, 2u);
}

TEST_F(Answers, DuplicateReadNeedsTheQueuePairsRight) {
  connect({.access = kRemoteWrite});
  wire::Packet read = request(Opcode::kRcReadRequest, 99);
  read.reth.dma_length = 8;
  EXPECT_TRUE(ask(read).empty());
  expect_ack(ask(request(Opcode::kRcWriteOnly, 100, 8)), 100);
}

// The network may repeat a READ long after its answer was used and what it named let go.
TEST_F(Answers, DuplicateReadOfAKeyThatWentEndsNothing) {
  connect();
  wire::Packet read = request(Opcode::kRcReadRequest, 100);
  read.reth.dma_length = 8;
  EXPECT_EQ(ask(read).size(), 1u);
  deliver(b, on_the_way(read));
  ASSERT_TRUE(b.keys.erase(b.key));  // before that is answered
  const auto answers = collect(b);
  ASSERT_EQ(answers.size(), 1u);
  expect_nak({answers[0].packet()}, NakCode::kRemoteAccessError, 100);
  expect_nak(ask(read), NakCode::kRemoteAccessError, 100);
  ASSERT_TRUE(b.receive(4, {}, now));
  expect_ack(ask(request(Opcode::kRcSendOnly, 101, 0)), 101);
}

TEST_F(Answers, ReceiverNotReadyCarriesTimerAndPsn) {
  connect();
  expect_answer(ask(request(Opcode::kRcSendOnly, 100, 8)), Aeth::Kind::kRnrNak, 1, 100);
  EXPECT_TRUE(ask(request(Opcode::kRcSendOnly, 101, 8)).empty())
      << "silence until the expected PSN comes again";
  ASSERT_TRUE(b.receive(4, {b.piece(0, 8)}, now));
  expect_ack(ask(request(Opcode::kRcSendOnly, 100, 8)), 100);
  EXPECT_EQ(b.received.take().id, 4u);
}

TEST_F(Answers, WriteWithImmediateTakesItsReceiveAtTheEnd) {
  connect({.mtu = 256});
  wire::Packet first = request(Opcode::kRcWriteFirst, 100, 256);
  first.reth.dma_length = 300;
  expect_ack(ask(first), 100);
  EXPECT_TRUE(b.received.completions.empty());
  wire::Packet last = request(Opcode::kRcWriteLastImm, 101, 44);
  last.immediate.value = 99;
  expect_answer(ask(last), Aeth::Kind::kRnrNak, 1, 101);
  ASSERT_TRUE(b.receive(4, {}, now));
  expect_ack(ask(last), 101);
  const Completion completion = b.received.take();
  EXPECT_EQ(completion.opcode, CompletionOpcode::kReceiveWriteWithImm);
  EXPECT_EQ(completion.byte_count, 300u);
  EXPECT_EQ(completion.immediate_or_key, 99u);
}

TEST_F(Answers, ShortReceiveIsAnErrorOnBothSides) {
  connect();
  ASSERT_TRUE(b.receive(4, {b.piece(0, 7)}, now));
  expect_nak(ask(request(Opcode::kRcSendOnly, 100, 8)), NakCode::kInvalidRequest, 100);
  EXPECT_EQ(b.received.take().status, Status::kLocalLengthError);
  EXPECT_EQ(b.memory[0], std::byte{0});
}

TEST_F(Answers, ReceiveKeysAreChecked) {
  connect();
  ASSERT_TRUE(b.receive(4, {{b.address(0), 100, b.key ^ 0x100}}, now));
  expect_nak(ask(request(Opcode::kRcSendOnly, 100, 8)), NakCode::kRemoteOperationalError, 100);
  EXPECT_EQ(b.received.take().status, Status::kLocalProtectionError);
}

TEST_F(Answers, AcknowledgementsOfABatchAreOne) {
  connect();
  std::vector<Datagram> datagrams;
  for (std::uint32_t psn = 100; psn < 110; ++psn) datagrams.push_back(write_only(psn));
  std::vector<wire::Segment> segments;
  for (const Datagram& datagram : datagrams)
    segments.push_back({.datagram = datagram.bytes, .path = datagram.path});
  b.engine.handle_batch(segments, now);
  EXPECT_TRUE(collect(b, Acks::kHold).empty());
  EXPECT_TRUE(b.engine.acks_held());
  const auto answers = collect(b, Acks::kSend);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].packet().bth.psn, 109u);
  EXPECT_EQ(answers[0].packet().aeth.msn, 10u);
  EXPECT_FALSE(b.engine.acks_held());
}

TEST_F(Answers, HeldAcknowledgementTravelsBehindTheReply) {
  connect();
  std::uint32_t psn = 100;
  for (const Acks with_reply : {Acks::kHold, Acks::kSend}) {
    deliver(b, write_only(psn++));
    EXPECT_TRUE(collect(b, Acks::kHold).empty());
    ASSERT_TRUE(
        b.send({.id = 1, .opcode = SendOpcode::kSend, .signaled = true}, {b.piece(0, 8)}, now));
    const auto out = collect(b, with_reply);
    ASSERT_EQ(out.size(), 2u);
    EXPECT_EQ(out[0].packet().bth.opcode, Opcode::kRcSendOnly);
    EXPECT_EQ(out[1].packet().bth.opcode, Opcode::kRcAcknowledge);
  }
}

TEST_F(Answers, AcknowledgementThatWasNotHeldGoesBeforeTheReply) {
  connect();
  for (const Acks before : {Acks::kSend, Acks::kHold}) {
    // A request, acknowledged as the last turn says, and another with a reply in the same turn.
    const std::uint32_t psn = before == Acks::kSend ? 100 : 102;
    deliver(b, write_only(psn));
    EXPECT_EQ(collect(b, before).size(), before == Acks::kSend ? 1u : 0u);
    collect(b, Acks::kSend);
    deliver(b, write_only(psn + 1));
    ASSERT_TRUE(
        b.send({.id = 1, .opcode = SendOpcode::kSend, .signaled = true}, {b.piece(0, 8)}, now));
    const auto out = collect(b, Acks::kSend);
    ASSERT_EQ(out.size(), 2u);
    EXPECT_EQ(out[0].packet().bth.opcode, Opcode::kRcAcknowledge);
    EXPECT_EQ(out[1].packet().bth.opcode, Opcode::kRcSendOnly);
  }
}

TEST_F(Answers, DestroyedQueuePairGoesOnAcknowledging) {
  connect();
  expect_ack(ask(request(Opcode::kRcWriteOnly, 100, 8)), 100);
  b.engine.destroy(*b.qp, now);
  expect_ack(ask(request(Opcode::kRcWriteOnly, 100, 8)), 100);
  EXPECT_TRUE(ask(request(Opcode::kRcWriteOnly, 101, 8)).empty());
  EXPECT_EQ(b.engine.counters().unknown_qp, 1u);
}

TEST_F(Answers, StrangersAndWrongPartitionsAreDropped) {
  connect();
  wire::Packet packet = request(Opcode::kRcWriteOnly, 100, 8);
  packet.bth.pkey = 0x1234;
  EXPECT_TRUE(ask(packet).empty());
  EXPECT_EQ(b.engine.counters().wrong_pkey, 1u);
  packet.bth.pkey = 0x7FFF;  // limited member of ours: we are a full one
  Datagram stranger{
      .bytes = std::vector<std::byte>(wire::encoded_size(packet)),
      .path = {.source = wire::Address::from_ipv4(0x7F000009), .destination = b.source}};
  wire::encode(packet, stranger.bytes);
  deliver(b, stranger);
  EXPECT_TRUE(collect(b).empty());
  EXPECT_EQ(b.engine.counters().wrong_source, 1u);
  stranger.path = {.source = a.source, .destination = wire::Address::from_ipv4(0x7F000009)};
  deliver(b, stranger);
  EXPECT_TRUE(collect(b).empty());
  EXPECT_EQ(b.engine.counters().wrong_source, 2u);
  expect_ack(ask(packet), 100);
}

}  // namespace
}  // namespace verbena::engine::testing
