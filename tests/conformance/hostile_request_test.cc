// SPDX-License-Identifier: Apache-2.0
//
// Requests that a peer must not send, or sends again: each is refused, dropped or served as the
// specification says, and memory outside what it may touch stays as it was.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "conformance/victim.h"

namespace verbena::conformance {
namespace {

using engine::Status;
using wire::Opcode;
using wire::Place;

constexpr std::uint32_t kPsn = Victim::kExpected;

// --- Opcode sequence

/// The packets that come before, and whether a message is then open.
struct Before {
  const char* name;
  std::vector<Opcode> opcodes;
};
const Before kBefore[] = {
    {"nothing", {}},
    {"SEND FIRST", {Opcode::kRcSendFirst}},
    {"SEND MIDDLE", {Opcode::kRcSendFirst, Opcode::kRcSendMiddle}},
    {"SEND LAST", {Opcode::kRcSendFirst, Opcode::kRcSendLast}},
    {"SEND ONLY", {Opcode::kRcSendOnly}},
    {"WRITE FIRST", {Opcode::kRcWriteFirst}},
    {"WRITE MIDDLE", {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle}},
    {"WRITE LAST", {Opcode::kRcWriteFirst, Opcode::kRcWriteLast}},
    {"WRITE ONLY", {Opcode::kRcWriteOnly}},
    {"READ", {Opcode::kRcReadRequest}},
    {"FETCH ADD", {Opcode::kRcFetchAdd}},
    {"ATOMIC WRITE", {Opcode::kRcAtomicWrite}},
    {"FLUSH", {Opcode::kRcFlush}},
};

bool continues(Opcode opcode) {
  const Place place = wire::info(opcode).place;
  return place == Place::kMiddle || place == Place::kLast;
}
bool leaves_open(Opcode opcode) {
  const Place place = wire::info(opcode).place;
  return place == Place::kFirst || place == Place::kMiddle;
}

/// A packet of full size for its place; a WRITE's length is such that all of `opcodes` fit it.
wire::Packet packet_of(const Victim& victim, const std::vector<Opcode>& opcodes, std::size_t i) {
  const wire::OpcodeInfo& row = wire::info(opcodes[i]);
  const bool word = row.operation == wire::Operation::kAtomicWrite;
  wire::Packet packet = victim.request(opcodes[i], kPsn + static_cast<std::uint32_t>(i),
                                       word              ? 8
                                       : row.has_payload ? 1024
                                                         : 0);
  if (row.place == Place::kFirst) {
    std::size_t end = i + 1;
    while (end < opcodes.size() && leaves_open(opcodes[end - 1]) && continues(opcodes[end])) ++end;
    const bool open = leaves_open(opcodes[end - 1]);
    packet.reth.dma_length = static_cast<std::uint32_t>((end - i + (open ? 1 : 0)) * 1024);
  }
  if (row.operation == wire::Operation::kReadRequest) packet.reth.dma_length = 8;
  return packet;
}

/// Every request opcode after every other: a MIDDLE or LAST only within a message of its own kind,
/// anything else only between messages; else NAK invalid request (engine.md, "Responder": "opcode
/// sequence" among the checks).
TEST(HostileRequests, EveryPairOfOpcodes) {
  for (const Before& before : kBefore) {
    for (const Opcode opcode : kRequests) {
      SCOPED_TRACE(std::string(before.name) + ", then " + std::string(wire::info(opcode).name));
      Victim victim;
      victim.post_receives(4);
      std::vector<Opcode> opcodes = before.opcodes;
      opcodes.push_back(opcode);
      const std::size_t last = opcodes.size() - 1;
      for (std::size_t i = 0; i < last; ++i) {
        const Outcome outcome = outcome_of(victim.ask(packet_of(victim, opcodes, i)));
        ASSERT_TRUE(outcome == Outcome::kAck || outcome == Outcome::kResponse);
      }
      const bool open = last != 0 && leaves_open(opcodes[last - 1]);
      const bool same =
          last != 0 && wire::info(opcodes[last - 1]).operation == wire::info(opcode).operation;
      const bool legal = open ? continues(opcode) && same : !continues(opcode);
      const bool responds = opcode == Opcode::kRcReadRequest || opcode == Opcode::kRcFetchAdd ||
                            opcode == Opcode::kRcCompareSwap || opcode == Opcode::kRcAtomicWrite ||
                            opcode == Opcode::kRcFlush;
      const std::vector<std::byte> storage = victim.storage;
      const auto answers = victim.ask(packet_of(victim, opcodes, last));
      expect_outcome(victim, answers,
                     !legal     ? Outcome::kNakInvalid
                     : responds ? Outcome::kResponse
                                : Outcome::kAck,
                     kPsn + static_cast<std::uint32_t>(last));
      if (!legal) {
        EXPECT_EQ(victim.storage, storage) << "a refused packet was executed";
        EXPECT_EQ(victim.end.engine.poll_event()->kind, engine::EventKind::kRequestError);
      }
    }
  }
}

// --- Lengths

/// FIRST and MIDDLE carry exactly the path MTU, LAST 1 to it, ONLY up to it (C9-92).
TEST(HostileRequests, PayloadOfEveryPlace) {
  struct Case {
    std::vector<Opcode> opcodes;
    std::vector<std::size_t> right;
    std::vector<std::size_t> wrong;
  };
  const Case cases[] = {
      {{Opcode::kRcSendFirst}, {256}, {0, 1, 255, 257, 260, 1024, 4096}},
      {{Opcode::kRcWriteFirst}, {256}, {0, 1, 255, 257, 260, 1024, 4096}},
      {{Opcode::kRcSendFirst, Opcode::kRcSendMiddle}, {256}, {0, 1, 255, 257, 4096}},
      {{Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle}, {256}, {0, 1, 255, 257, 4096}},
      {{Opcode::kRcSendFirst, Opcode::kRcSendLast}, {1, 255, 256}, {0, 257, 4096}},
      {{Opcode::kRcSendFirst, Opcode::kRcSendLastImm}, {1, 256}, {0, 257}},
      {{Opcode::kRcSendFirst, Opcode::kRcSendLastInv}, {1, 256}, {0, 257}},
      {{Opcode::kRcWriteFirst, Opcode::kRcWriteLast}, {1, 255, 256}, {0, 257, 4096}},
      {{Opcode::kRcWriteFirst, Opcode::kRcWriteLastImm}, {1, 256}, {0, 257}},
      {{Opcode::kRcSendOnly}, {0, 1, 255, 256}, {257, 512, 4096}},
      {{Opcode::kRcSendOnlyImm}, {0, 256}, {257}},
      {{Opcode::kRcSendOnlyInv}, {0, 256}, {257}},
      {{Opcode::kRcWriteOnly}, {0, 1, 255, 256}, {257, 512, 4096}},
      {{Opcode::kRcWriteOnlyImm}, {0, 256}, {257}},
  };
  for (const Case& test : cases) {
    for (const bool right : {true, false}) {
      for (const std::size_t size : right ? test.right : test.wrong) {
        const Opcode opcode = test.opcodes.back();
        SCOPED_TRACE(std::string(wire::info(opcode).name) + " of " + std::to_string(size));
        Victim victim({.mtu = 256});
        victim.post_receives(1);
        const bool second = test.opcodes.size() == 2;
        // A WRITE announces what makes this packet right or wrong by its place alone.
        const std::size_t announced =
            second || leaves_open(opcode) ? std::max<std::size_t>(size, 1) : size;
        const auto left = static_cast<std::uint32_t>(announced + (leaves_open(opcode) ? 256 : 0));
        if (second) {
          wire::Packet first = victim.request(test.opcodes[0], kPsn, 256);
          first.reth.dma_length = 256 + left;
          ASSERT_EQ(outcome_of(victim.ask(first)), Outcome::kAck);
        }
        const std::uint32_t psn = kPsn + (second ? 1 : 0);
        wire::Packet packet = victim.request(opcode, psn, size);
        packet.reth.dma_length = left;
        const std::vector<std::byte> storage = victim.storage;
        expect_outcome(victim, victim.ask(packet), right ? Outcome::kAck : Outcome::kNakInvalid,
                       psn);
        if (!right) {
          EXPECT_EQ(victim.storage, storage);
        }
      }
    }
  }
}

/// The packets of a WRITE bring exactly the bytes that its RETH announced (engine.md, "Responder":
/// length among the checks); neither more nor less, and no byte beyond them is written.
TEST(HostileRequests, WritesThatDoNotMatchTheirLength) {
  struct Case {
    const char* name;
    std::vector<Opcode> opcodes;
    std::vector<std::size_t> sizes;
    std::uint32_t dma_length;
  };
  const Case cases[] = {
      {"ONLY brings less", {Opcode::kRcWriteOnly}, {64}, 65},
      {"ONLY brings more", {Opcode::kRcWriteOnly}, {64}, 63},
      {"ONLY brings some for nothing", {Opcode::kRcWriteOnly}, {64}, 0},
      {"ONLY brings nothing for some", {Opcode::kRcWriteOnly}, {0}, 8},
      {"ONLY IMM brings more", {Opcode::kRcWriteOnlyImm}, {64}, 60},
      {"FIRST holds all", {Opcode::kRcWriteFirst}, {1024}, 1024},
      {"FIRST holds more", {Opcode::kRcWriteFirst}, {1024}, 1000},
      {"FIRST for nothing", {Opcode::kRcWriteFirst}, {1024}, 0},
      {"MIDDLE ends it", {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle}, {1024, 1024}, 2048},
      {"MIDDLE goes beyond", {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle}, {1024, 1024}, 1500},
      {"LAST comes early", {Opcode::kRcWriteFirst, Opcode::kRcWriteLast}, {1024, 100}, 1500},
      {"LAST goes beyond", {Opcode::kRcWriteFirst, Opcode::kRcWriteLast}, {1024, 500}, 1500},
      {"LAST IMM one short", {Opcode::kRcWriteFirst, Opcode::kRcWriteLastImm}, {1024, 475}, 1500},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    Victim victim;
    victim.post_receives(1);
    for (std::uint32_t i = 0; i < test.opcodes.size(); ++i) {
      wire::Packet packet = victim.request(test.opcodes[i], kPsn + i, test.sizes[i]);
      packet.reth.dma_length = test.dma_length;
      const bool last = i + 1 == test.opcodes.size();
      expect_outcome(victim, victim.ask(packet), last ? Outcome::kNakInvalid : Outcome::kAck,
                     kPsn + i);
    }
    victim.expect_changes_only_in(Victim::kRemote,
                                  Victim::kRemote + (test.opcodes.size() - 1) * 1024);
    for (const engine::Completion& completion : victim.end.received.completions)
      EXPECT_NE(completion.status, Status::kSuccess);
  }
}

/// A SEND longer than its receive: NAK, an error completion, and nothing placed beyond the receive
/// (engine.md, "Responder": resources, then length).
TEST(HostileRequests, SendsBeyondTheirReceive) {
  for (const std::uint32_t room : {0u, 1u, 7u, 1023u, 1024u, 1025u, 2047u}) {
    SCOPED_TRACE(room);
    Victim victim;
    victim.post_receives(2, room);
    std::uint32_t psn = kPsn;
    Outcome outcome = outcome_of(victim.ask(victim.request(Opcode::kRcSendFirst, psn, 1024)));
    while (outcome == Outcome::kAck && psn < kPsn + 8)
      outcome = outcome_of(victim.ask(victim.request(Opcode::kRcSendMiddle, ++psn, 1024)));
    EXPECT_EQ(outcome, Outcome::kNakInvalid);
    EXPECT_EQ(psn, kPsn + room / 1024);
    EXPECT_FALSE(victim.alive());
    victim.expect_changes_only_in(Victim::kLocal, Victim::kLocal + room);
    ASSERT_EQ(victim.end.received.completions.size(), 2u);
    EXPECT_EQ(victim.end.received.completions[0].status, Status::kLocalLengthError);
    EXPECT_EQ(victim.end.received.completions[1].status, Status::kFlushError);
  }
}

// --- Keys and ranges

struct Reach {
  const char* name;
  std::uint64_t address;
  std::uint32_t length;
  Outcome outcome;
};
constexpr std::uint64_t kEnd = Victim::kAddress + Victim::kLength;
/// DMA length up to 2^31 (C9-94); zero length skips the key check (C9-88); ranges do not wrap
/// around (engine.md, "Responder").
const Reach kReaches[] = {
    {"the last byte", kEnd - 1, 1, Outcome::kResponse},
    {"all of it", Victim::kAddress, Victim::kLength, Outcome::kResponse},
    {"nothing, anywhere", 0xDEAD, 0, Outcome::kResponse},
    {"one byte before", Victim::kAddress - 1, 1, Outcome::kNakAccess},
    {"from one byte before", Victim::kAddress - 1, 64, Outcome::kNakAccess},
    {"one byte beyond", kEnd, 1, Outcome::kNakAccess},
    {"to one byte beyond", kEnd - 63, 64, Outcome::kNakAccess},
    {"more than all", Victim::kAddress, Victim::kLength + 1, Outcome::kNakAccess},
    {"the end of the address space", ~std::uint64_t{0}, 1, Outcome::kNakAccess},
    {"round the address space", ~std::uint64_t{0} - 7, 64, Outcome::kNakAccess},
    {"round into the region", Victim::kAddress - 0x8000'0000ULL, 0x8000'0000, Outcome::kNakAccess},
    {"address zero", 0, 8, Outcome::kNakAccess},
    {"the longest", Victim::kAddress, 0x8000'0000, Outcome::kNakAccess},
    {"one byte too long", Victim::kAddress, 0x8000'0001, Outcome::kNakInvalid},
    {"all bits", Victim::kAddress, 0xFFFF'FFFF, Outcome::kNakInvalid},
};

TEST(HostileRequests, ReachOfReads) {
  for (const Reach& reach : kReaches) {
    SCOPED_TRACE(reach.name);
    Victim victim;
    wire::Packet packet = victim.read(kPsn, reach.length);
    packet.reth.address = reach.address;
    const auto answers = victim.ask(packet);
    expect_outcome(victim, answers, reach.outcome, kPsn);
    victim.expect_untouched();
    if (reach.outcome != Outcome::kResponse) continue;
    std::size_t bytes = 0;
    for (const SentPacket& answer : answers) bytes += answer.packet.payload.size();
    EXPECT_EQ(bytes, reach.length);
  }
}

TEST(HostileRequests, ReachOfWrites) {
  for (const Reach& reach : kReaches) {
    SCOPED_TRACE(reach.name);
    Victim victim;
    const bool only = reach.length <= 1024;
    wire::Packet packet = victim.request(only ? Opcode::kRcWriteOnly : Opcode::kRcWriteFirst, kPsn,
                                         only ? reach.length : 1024);
    packet.reth.address = reach.address;
    packet.reth.dma_length = reach.length;
    const auto answers = victim.ask(packet);
    expect_outcome(victim, answers,
                   reach.outcome == Outcome::kResponse ? Outcome::kAck : reach.outcome, kPsn);
    if (fatal(reach.outcome)) {
      victim.expect_untouched();
    } else {
      victim.expect_changes_only_in(Victim::kRemote, Victim::kRemote + Victim::kLength);
    }
  }
}

/// PD, key and rights, of the region and of the queue pair (engine.md, "Responder": "PD, range, MR
/// access *and* QP access flags"). A right that the queue pair lacks makes the opcode invalid.
TEST(HostileRequests, RightsOfEveryOperation) {
  struct Operation {
    const char* name;
    Opcode opcode;
    std::size_t payload;
    std::uint32_t right;
  };
  const Operation operations[] = {
      {"WRITE", Opcode::kRcWriteOnly, 8, engine::kRemoteWrite},
      {"READ", Opcode::kRcReadRequest, 0, engine::kRemoteRead},
      {"ATOMIC WRITE", Opcode::kRcAtomicWrite, 8, engine::kRemoteWrite},
      {"FLUSH", Opcode::kRcFlush, 0, engine::kFlushGlobal},
      {"FETCH ADD", Opcode::kRcFetchAdd, 0, engine::kRemoteAtomic},
      {"COMPARE SWAP", Opcode::kRcCompareSwap, 0, engine::kRemoteAtomic},
  };
  constexpr std::uint32_t kAll =
      engine::kRemoteWrite | engine::kRemoteRead | engine::kRemoteAtomic | engine::kFlushGlobal;
  const auto ask = [](Victim& victim, const Operation& operation, std::uint32_t rkey) {
    wire::Packet packet = victim.request(operation.opcode, kPsn, operation.payload);
    packet.reth.dma_length = 8;
    packet.reth.rkey = packet.atomic_eth.rkey = rkey;
    return victim.ask(packet);
  };
  for (const Operation& operation : operations) {
    SCOPED_TRACE(operation.name);
    Victim without_queue_right({.access = kAll & ~operation.right});
    expect_outcome(without_queue_right,
                   ask(without_queue_right, operation, without_queue_right.rkey),
                   Outcome::kNakInvalid, kPsn);
    without_queue_right.expect_untouched();

    Victim without_region_right({.region_access = engine::kLocalWrite | (kAll & ~operation.right)});
    expect_outcome(without_region_right,
                   ask(without_region_right, operation, without_region_right.rkey),
                   Outcome::kNakAccess, kPsn);
    without_region_right.expect_untouched();

    const Victim model;
    for (const std::uint32_t key : {model.foreign_key, model.local_key, model.rkey ^ 1,
                                    model.rkey ^ 0x100, model.rkey ^ 0x8000'0000, 0u}) {
      Victim victim;
      expect_outcome(victim, ask(victim, operation, key), Outcome::kNakAccess, kPsn);
      EXPECT_EQ(victim.end.engine.poll_event()->kind, engine::EventKind::kAccessError);
      victim.expect_untouched();
    }
  }
}

/// Atomics are 8-byte aligned or NAK invalid (engine.md, "Responder"), and stay within the region.
TEST(HostileRequests, AddressesOfAtomics) {
  for (const Opcode opcode : {Opcode::kRcFetchAdd, Opcode::kRcCompareSwap}) {
    for (std::uint64_t offset = 0; offset < 8; ++offset) {
      Victim victim;
      wire::Packet packet = victim.request(opcode, kPsn);
      packet.atomic_eth.address += offset;
      expect_outcome(victim, victim.ask(packet),
                     offset == 0 ? Outcome::kResponse : Outcome::kNakInvalid, kPsn);
      if (offset == 0) {
        victim.expect_changes_only_in(Victim::kRemote, Victim::kRemote + 8);
      } else {
        victim.expect_untouched();
      }
    }
    for (const std::uint64_t address :
         {kEnd, Victim::kAddress - 8, std::uint64_t{0}, ~std::uint64_t{7}}) {
      Victim victim;
      wire::Packet packet = victim.request(opcode, kPsn);
      packet.atomic_eth.address = address;
      expect_outcome(victim, victim.ask(packet), Outcome::kNakAccess, kPsn);
      victim.expect_untouched();
    }
  }
}

/// SEND WITH INVALIDATE with a bad key: an error completion and ERR, but no NAK (engine.md,
/// "Responder").
TEST(HostileRequests, KeysThatCannotBeInvalidated) {
  const Victim model;
  for (const std::uint32_t key :
       {model.rkey, model.foreign_key, model.window_key ^ 1, 0u, 0xFFFF'FFFFu}) {
    Victim victim;
    victim.post_receives(1);
    wire::Packet packet = victim.request(Opcode::kRcSendOnlyInv, kPsn, 16);
    packet.ieth.rkey = key;
    EXPECT_TRUE(victim.ask(packet).empty());
    EXPECT_FALSE(victim.alive());
    ASSERT_EQ(victim.end.received.completions.size(), 1u);
    EXPECT_NE(victim.end.received.completions[0].status, Status::kSuccess);
    victim.expect_changes_only_in(Victim::kLocal, Victim::kLocal + 16);
    EXPECT_TRUE(victim.keys.lookup(victim.rkey, Victim::kAddress, 1, 0, TestMemory::kPd));
  }
}

/// More READs and atomics at once than max_dest_rd_atomic: NAK invalid request.
TEST(HostileRequests, MoreReadsThanAgreed) {
  for (const std::uint8_t agreed : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{4}}) {
    SCOPED_TRACE(agreed);
    Victim victim({.rd_atomic = agreed});
    for (std::uint32_t i = 0; i <= agreed; ++i) victim.end.deliver(victim.read(kPsn + i, 8));
    const auto answers = victim.end.collect();
    ASSERT_EQ(answers.size(), agreed + 1u);
    EXPECT_EQ(answers.back().packet.aeth.kind, wire::Aeth::Kind::kNak);
    EXPECT_EQ(answers.back().packet.aeth.value,
              static_cast<std::uint8_t>(wire::NakCode::kInvalidRequest));
    EXPECT_EQ(answers.back().packet.bth.psn, kPsn + agreed);
    EXPECT_FALSE(victim.alive());
  }
}

// --- Receivers that are not ready

/// An RNR NAK carries the request's PSN and the timer code; nothing is consumed or placed. A
/// WRITE WITH IMMEDIATE may be told so at its last packet (engine.md, "Responder").
TEST(HostileRequests, WithoutAReceive) {
  for (const Opcode opcode : {Opcode::kRcSendFirst, Opcode::kRcSendOnly, Opcode::kRcSendOnlyImm,
                              Opcode::kRcSendOnlyInv, Opcode::kRcWriteOnlyImm}) {
    SCOPED_TRACE(wire::info(opcode).name);
    Victim victim;
    const wire::Packet packet = victim.request(opcode, kPsn, 1024);
    for (int times = 0; times < 3; ++times) {
      const auto answers = victim.ask(packet);
      ASSERT_EQ(answers.size(), 1u);
      EXPECT_EQ(answers.front().packet.aeth.kind, wire::Aeth::Kind::kRnrNak);
      EXPECT_EQ(answers.front().packet.aeth.value, 1);
      EXPECT_EQ(answers.front().packet.bth.psn, kPsn);
      EXPECT_EQ(answers.front().packet.aeth.msn, 0u);
    }
    EXPECT_EQ(victim.counters().rnr_naks_sent, 3u);
    victim.expect_untouched();
    victim.post_receives(1);
    EXPECT_EQ(outcome_of(victim.ask(packet)), Outcome::kAck);
  }
}

}  // namespace
}  // namespace verbena::conformance
