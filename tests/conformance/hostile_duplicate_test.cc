// SPDX-License-Identifier: Apache-2.0
//
// Requests with the wrong PSN: before the window, behind it, and repetitions of every kind.
#include <gtest/gtest.h>

#include "conformance/victim.h"
#include "engine/psn.h"

namespace verbena::conformance {
namespace {

using wire::Opcode;

constexpr std::uint32_t kPsn = Victim::kExpected;

/// A window of ±2^23: behind it is a duplicate, ahead of it a gap, NAKed once with the expected PSN
/// (engine.md, "Responder").
TEST(SequenceNumbers, EdgesOfTheWindow) {
  for (const std::uint32_t expected : {kPsn, 0u, 1u, 0xFFFFFFu, 0x800000u, 0x7FFFFFu}) {
    SCOPED_TRACE(expected);
    constexpr std::uint32_t kHalf = 1 << 23;
    for (const std::uint32_t ahead : {1u, 2u, kHalf - 1}) {
      Victim victim({.expected = expected});
      const std::uint32_t psn = engine::psn_add(expected, ahead);
      expect_outcome(victim, victim.ask(victim.request(Opcode::kRcWriteOnly, psn, 8)),
                     Outcome::kNakSequence, expected);
      EXPECT_EQ(outcome_of(victim.ask(victim.request(Opcode::kRcWriteOnly, psn, 8))),
                Outcome::kSilence);
      EXPECT_EQ(victim.counters().out_of_sequence, 2u);
      victim.expect_untouched();
    }
    for (const std::uint32_t behind : {1u, 2u, kHalf}) {
      Victim victim({.expected = expected});
      const std::uint32_t psn = engine::psn_add(expected, (1 << 24) - behind);
      expect_outcome(victim, victim.ask(victim.request(Opcode::kRcWriteOnly, psn, 8)),
                     Outcome::kAck, engine::psn_add(expected, wire::kMask24));
      EXPECT_EQ(victim.counters().duplicates, 1u);
      victim.expect_untouched();
    }
  }
}

/// After a SEND, a WRITE, a READ of two packets and both atomics.
class Duplicates : public testing::Test {
 protected:
  static constexpr std::uint32_t kNext = kPsn + 6;
  static constexpr std::uint32_t kMessages = 5;

  void SetUp() override {
    victim.post_receives(4);
    EXPECT_EQ(outcome_of(victim.ask(victim.request(Opcode::kRcSendOnly, kPsn, 8))), Outcome::kAck);
    EXPECT_EQ(outcome_of(victim.ask(victim.request(Opcode::kRcWriteOnly, kPsn + 1, 8))),
              Outcome::kAck);
    EXPECT_EQ(victim.ask(victim.read(kPsn + 2, 2048)).size(), 2u);
    fetched = original(victim.ask(victim.request(Opcode::kRcFetchAdd, kPsn + 4)));
    swapped = original(victim.ask(victim.request(Opcode::kRcCompareSwap, kPsn + 5)));
    victim.expect_changes_only_in(Victim::kRemote, Victim::kLocal + 8);
    ASSERT_EQ(victim.end.received.completions.size(), 1u);
  }

  static std::uint64_t original(const std::deque<SentPacket>& answers) {
    return answers.size() == 1 ? answers.front().packet.atomic_ack_eth.original : 0;
  }

  /// Served as a duplicate: nothing was executed, and the next request counts on from before.
  void expect_nothing_happened() {
    victim.expect_untouched();
    EXPECT_EQ(victim.end.received.completions.size(), 1u);
    EXPECT_TRUE(victim.alive());
    const auto answers = victim.ask(victim.request(Opcode::kRcWriteOnly, kNext, 8));
    ASSERT_EQ(outcome_of(answers), Outcome::kAck);
    EXPECT_EQ(answers.front().packet.aeth.msn, kMessages + 1);
  }

  Victim victim;
  std::uint64_t fetched = 0;
  std::uint64_t swapped = 0;
};

/// SEND and WRITE re-ACK the latest PSN and are never executed again (C9-105), whatever they carry.
TEST_F(Duplicates, SendsAndWritesAreAcknowledgedAgain) {
  for (const Opcode opcode : kRequests) {
    const wire::OpcodeInfo& row = wire::info(opcode);
    if (!row.has_payload || row.operation == wire::Operation::kAtomicWrite) continue;
    for (const std::uint32_t psn : {kPsn - 1, kPsn, kPsn + 1, kPsn + 3, kNext - 1}) {
      SCOPED_TRACE(std::string(row.name) + " psn " + std::to_string(psn));
      wire::Packet packet = victim.request(opcode, psn, 16);
      packet.reth.rkey = 0xBAD;
      const auto answers = victim.ask(packet);
      ASSERT_EQ(outcome_of(answers), Outcome::kAck);
      EXPECT_EQ(answers.front().packet.bth.psn, kNext - 1);
      EXPECT_EQ(answers.front().packet.aeth.msn, kMessages);
    }
  }
  expect_nothing_happened();
}

/// One that was never executed has no answer to be repeated.
TEST_F(Duplicates, UnknownAtomicWritesAndFlushesAreDropped) {
  EXPECT_TRUE(victim.ask(victim.request(Opcode::kRcAtomicWrite, kPsn, 8)).empty());
  EXPECT_TRUE(victim.ask(victim.request(Opcode::kRcFlush, kPsn)).empty());
  expect_nothing_happened();
}

/// A READ is read again; a retry may ask for a tail with a later PSN (engine.md, "Responder").
TEST_F(Duplicates, ReadsAreReadAgain) {
  const auto whole = victim.ask(victim.read(kPsn + 2, 2048));
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole[0].packet.bth.opcode, Opcode::kRcReadResponseFirst);
  EXPECT_EQ(whole[0].packet.bth.psn, kPsn + 2);
  EXPECT_EQ(whole[1].packet.aeth.msn, kMessages) << "a duplicate counted as a message";
  wire::Packet tail = victim.read(kPsn + 3, 1024);
  tail.reth.address += 1024;
  const auto half = victim.ask(tail);
  ASSERT_EQ(half.size(), 1u);
  EXPECT_EQ(half[0].packet.bth.opcode, Opcode::kRcReadResponseOnly);
  EXPECT_EQ(half[0].packet.bth.psn, kPsn + 3);
  EXPECT_TRUE(std::equal(half[0].packet.payload.begin(), half[0].packet.payload.end(),
                         victim.storage.begin() + Victim::kRemote + 1024));
  expect_nothing_happened();
}

/// A repeated READ whose answer would go beyond what was ever asked is no duplicate of anything.
TEST_F(Duplicates, ReadsThatReachBeyondTheWindowAreDropped) {
  EXPECT_TRUE(victim.ask(victim.read(kNext - 1, 1025)).empty());
  EXPECT_TRUE(victim.ask(victim.read(kPsn, 0x8000'0000)).empty());
  EXPECT_TRUE(victim.ask(victim.read(kPsn, 0x8000'0001)).empty());
  EXPECT_TRUE(victim.ask(victim.read(kPsn, 0xFFFF'FFFF)).empty());
  expect_nothing_happened();
}

/// The key is checked again, and so is the range.
TEST_F(Duplicates, ReadsWithABadKeyAreRefused) {
  wire::Packet packet = victim.read(kPsn + 2, 2048);
  packet.reth.address = Victim::kAddress + Victim::kLength - 2047;
  const auto answers = victim.ask(packet);
  EXPECT_EQ(outcome_of(answers), Outcome::kNakAccess);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers.front().packet.bth.psn, kPsn + 2);
  expect_nothing_happened();  // the network may have repeated it: it ends nothing
}

/// The saved result is sent again, with its own PSN; an unknown duplicate is dropped (engine.md,
/// "Responder").
TEST_F(Duplicates, AtomicsAreReplayed) {
  for (int times = 0; times < 3; ++times) {
    const auto add = victim.ask(victim.request(Opcode::kRcFetchAdd, kPsn + 4));
    ASSERT_EQ(add.size(), 1u);
    EXPECT_EQ(add.front().packet.bth.psn, kPsn + 4);
    EXPECT_EQ(original(add), fetched);
    const auto swap = victim.ask(victim.request(Opcode::kRcCompareSwap, kPsn + 5));
    ASSERT_EQ(swap.size(), 1u);
    EXPECT_EQ(original(swap), swapped);
    EXPECT_EQ(swapped, fetched + 5);
  }
  for (const std::uint32_t unknown : {kPsn - 1, kPsn, kPsn + 3})
    EXPECT_TRUE(victim.ask(victim.request(Opcode::kRcFetchAdd, unknown)).empty());
  expect_nothing_happened();
}

/// A PSN in the past opens no way round the rights of the queue pair.
TEST(SequenceNumbers, DuplicateReadNeedsTheQueuePairsRight) {
  for (const Victim::Options& options :
       {Victim::Options{.access = engine::kRemoteWrite}, Victim::Options{.rd_atomic = 0}}) {
    Victim victim(options);
    EXPECT_TRUE(victim.ask(victim.read(kPsn - 1, 8)).empty());
    EXPECT_TRUE(victim.ask(victim.request(Opcode::kRcFetchAdd, kPsn - 1)).empty());
    EXPECT_EQ(victim.counters().duplicates, 2u);
    victim.expect_untouched();
    EXPECT_EQ(outcome_of(victim.ask(victim.request(Opcode::kRcWriteOnly, kPsn, 8))), Outcome::kAck);
  }
}

/// Duplicates cost no memory: however many come before the engine may send, the answers to them are
/// bounded by what was agreed.
TEST_F(Duplicates, FloodIsBounded) {
  for (int i = 0; i < 1000; ++i) {
    victim.end.deliver(victim.read(kPsn + 2, 2048));
    victim.end.deliver(victim.read(kPsn + 3, 8));
    victim.end.deliver(victim.request(Opcode::kRcFetchAdd, kPsn + 4));
    victim.end.deliver(victim.request(Opcode::kRcWriteOnly, kPsn, 8));
  }
  EXPECT_LE(victim.end.collect().size(), 4u * 4 + 4 + 4);
  expect_nothing_happened();
}

}  // namespace
}  // namespace verbena::conformance
