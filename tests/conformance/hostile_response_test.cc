// SPDX-License-Identifier: Apache-2.0
//
// Answers that nobody asked for, or that do not fit what was asked: each is dropped and counted, or
// ends the request with an error; local memory outside the request's pieces stays as it was.
#include <gtest/gtest.h>

#include <vector>

#include "conformance/victim.h"
#include "engine/psn.h"

namespace verbena::conformance {
namespace {

using engine::SendOpcode;
using engine::Status;
using wire::Aeth;
using wire::Opcode;

constexpr std::uint32_t kPsn = Victim::kNextSend;

const Opcode kResponses[] = {Opcode::kRcAcknowledge,       Opcode::kRcAtomicAcknowledge,
                             Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle,
                             Opcode::kRcReadResponseLast,  Opcode::kRcReadResponseOnly};

const Opcode kReadResponses[] = {Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle,
                                 Opcode::kRcReadResponseLast, Opcode::kRcReadResponseOnly};

/// A request of the victim's own is under way.
class HostileResponses : public testing::Test {
 protected:
  static constexpr std::uint32_t kReadLength = 2500;  ///< three packets

  /// Posts and sends; the local piece is the start of the local region.
  static void ask(Victim& victim, SendOpcode opcode, std::uint32_t length) {
    const engine::Sge piece{Victim::kLocalAddress, length, victim.local_key};
    victim.end.send({.id = 1,
                     .opcode = opcode,
                     .signaled = true,
                     .remote_address = 0x1000,
                     .rkey = 1,
                     .pieces = std::span(&piece, 1)});
    ASSERT_FALSE(victim.end.collect().empty());
  }

  static wire::Packet response(const Victim& victim, Opcode opcode, std::uint32_t psn,
                               std::size_t payload = 0) {
    wire::Packet packet = victim.request(opcode, psn, payload);
    packet.bth.ack_request = false;
    packet.atomic_ack_eth.original = 0x5A5A5A5A5A5A5A5A;
    return packet;
  }
  static wire::Packet answer(const Victim& victim, Aeth::Kind kind, std::uint8_t value,
                             std::uint32_t psn) {
    wire::Packet packet = response(victim, Opcode::kRcAcknowledge, psn);
    packet.aeth.kind = kind;
    packet.aeth.value = value;
    return packet;
  }

  /// The first `count` packets of the answer to a READ of kReadLength, as they should be.
  static void answer_read(Victim& victim, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const Opcode good = i == 0 ? Opcode::kRcReadResponseFirst : Opcode::kRcReadResponseMiddle;
      EXPECT_TRUE(victim.ask(response(victim, good, kPsn + i, 1024)).empty());
    }
    victim.expect_changes_only_in(Victim::kLocal, Victim::kLocal + std::size_t{count} * 1024);
  }

  /// Nothing has come of it: no completion, no packet, no byte.
  static void expect_ignored(Victim& victim, const wire::Packet& packet) {
    EXPECT_TRUE(victim.ask(packet).empty());
    EXPECT_TRUE(victim.end.sent.completions.empty());
    EXPECT_TRUE(victim.alive());
    victim.expect_untouched();
  }
  /// The request ends with this status, the queue pair in ERR.
  static void expect_failed(Victim& victim, const wire::Packet& packet, Status status) {
    EXPECT_TRUE(victim.ask(packet).empty());
    ASSERT_EQ(victim.end.sent.completions.size(), 1u);
    EXPECT_EQ(victim.end.sent.completions[0].status, status);
    EXPECT_FALSE(victim.alive());
    victim.expect_untouched();
  }
  static void expect_done(Victim& victim, const wire::Packet& packet) {
    EXPECT_TRUE(victim.ask(packet).empty());
    ASSERT_EQ(victim.end.sent.completions.size(), 1u);
    EXPECT_EQ(victim.end.sent.completions[0].status, Status::kSuccess);
    EXPECT_TRUE(victim.alive());
  }
};

/// Nothing was asked: every answer is a ghost (engine.md, "Requester": ignore ghost ACKs).
TEST_F(HostileResponses, NobodyAsked) {
  Victim victim;
  std::uint64_t ghosts = 0;
  for (const Opcode opcode : kResponses) {
    for (const std::uint32_t psn :
         {kPsn - 1, kPsn, kPsn + 1, 0u, 0xFFFFFFu, engine::psn_add(kPsn, 1 << 23)}) {
      const std::size_t payload = wire::info(opcode).has_payload ? 1024 : 0;
      expect_ignored(victim, response(victim, opcode, psn, payload));
      EXPECT_EQ(victim.counters().ghost_responses, ++ghosts);
    }
  }
  for (unsigned syndrome = 0; syndrome < 256; ++syndrome) {
    wire::Packet packet = response(victim, Opcode::kRcAcknowledge, kPsn);
    packet.aeth.reserved = static_cast<std::uint8_t>(syndrome >> 7);
    packet.aeth.kind = static_cast<Aeth::Kind>((syndrome >> 5) & 3);
    packet.aeth.value = static_cast<std::uint8_t>(syndrome & 31);
    expect_ignored(victim, packet);
    EXPECT_EQ(victim.counters().ghost_responses, ++ghosts);
  }
  ask(victim, SendOpcode::kSend, 8);
  expect_done(victim, answer(victim, Aeth::Kind::kAck, 31, kPsn));
}

/// A SEND is under way: answers for other PSNs are ghosts, whatever they say.
TEST_F(HostileResponses, OtherPsns) {
  for (const Aeth::Kind kind : {Aeth::Kind::kAck, Aeth::Kind::kRnrNak, Aeth::Kind::kNak}) {
    for (std::uint8_t value = 0; value < 4; ++value) {
      Victim victim;
      ask(victim, SendOpcode::kSend, 8);
      for (const std::uint32_t psn : {kPsn - 1, kPsn + 1, engine::psn_add(kPsn, 1 << 23),
                                      engine::psn_add(kPsn, (1 << 23) - 1)}) {
        expect_ignored(victim, answer(victim, kind, value, psn));
      }
      EXPECT_EQ(victim.counters().ghost_responses, 4u);
      EXPECT_EQ(victim.counters().retransmitted, 0u);
      expect_done(victim, answer(victim, Aeth::Kind::kAck, 31, kPsn));
    }
  }
}

/// Reserved kinds of AETH and NAK codes from 4 on say nothing that could be acted upon (engine.md,
/// "Responder" lists the codes): dropped and counted. Not even the requests before it are
/// acknowledged, and all go on waiting.
TEST_F(HostileResponses, ReservedSyndromes) {
  struct Case {
    Aeth::Kind kind;
    std::uint8_t from;
  };
  for (const Case& test : {Case{Aeth::Kind::kReserved, 0}, Case{Aeth::Kind::kNak, 4}}) {
    for (std::uint8_t value = test.from; value < 32; ++value) {
      SCOPED_TRACE(int{value});
      Victim victim;
      ask(victim, SendOpcode::kSend, 8);
      ask(victim, SendOpcode::kSend, 8);
      expect_ignored(victim, answer(victim, test.kind, value, kPsn));
      expect_ignored(victim, answer(victim, test.kind, value, kPsn + 1));
      EXPECT_EQ(victim.counters().malformed, 2u);
      EXPECT_EQ(engine::naks_received(victim.counters()), 0u);
      EXPECT_EQ(victim.counters().retransmitted, 0u);
      expect_done(victim, answer(victim, Aeth::Kind::kAck, 31, kPsn));
      victim.end.sent.completions.clear();
      expect_done(victim, answer(victim, Aeth::Kind::kAck, 31, kPsn + 1));
    }
  }
}

/// Every credit count acknowledges, and the syndrome's top bit, which is reserved, is ignored.
TEST_F(HostileResponses, CreditsAndTheReservedBit) {
  for (std::uint8_t value = 0; value < 32; ++value) {
    for (const bool reserved : {false, true}) {
      Victim victim;
      ask(victim, SendOpcode::kSend, 8);
      wire::Packet packet = answer(victim, Aeth::Kind::kAck, value, kPsn);
      packet.aeth.reserved = reserved ? 1 : 0;
      expect_done(victim, packet);
    }
  }
}

/// Every RNR timer code is one: the request waits, and goes out again.
TEST_F(HostileResponses, RnrTimerCodes) {
  for (std::uint8_t value = 0; value < 32; ++value) {
    Victim victim;
    ask(victim, SendOpcode::kSend, 8);
    expect_ignored(victim, answer(victim, Aeth::Kind::kRnrNak, value, kPsn));
    EXPECT_EQ(victim.counters().malformed, 0u);
    EXPECT_EQ(victim.counters().rnr_naks_received, 1u);
  }
}

/// READ responses and atomic acknowledgements that are at once refusals: neither is believed.
TEST_F(HostileResponses, DataWithANegativeSyndrome) {
  for (const Aeth::Kind kind : {Aeth::Kind::kRnrNak, Aeth::Kind::kReserved, Aeth::Kind::kNak}) {
    for (std::uint8_t value = 0; value < 32; ++value) {
      for (const bool atomic : {false, true}) {
        Victim victim;
        ask(victim, SendOpcode::kSend, 8);
        ask(victim, atomic ? SendOpcode::kFetchAdd : SendOpcode::kRead, 8);
        const Opcode opcode = atomic ? Opcode::kRcAtomicAcknowledge : Opcode::kRcReadResponseOnly;
        wire::Packet packet = response(victim, opcode, kPsn + 1, atomic ? 0 : 8);
        packet.aeth.kind = kind;
        packet.aeth.value = value;
        expect_ignored(victim, packet);
        EXPECT_EQ(victim.counters().malformed, 1u);
        packet.aeth = {};
        EXPECT_TRUE(victim.ask(packet).empty());
        ASSERT_EQ(victim.end.sent.completions.size(), 2u);
        EXPECT_EQ(victim.end.sent.completions[1].status, Status::kSuccess);
      }
    }
  }
}

/// NAK codes (engine.md, "Responder") end the request they name with their status and acknowledge
/// those before it.
TEST_F(HostileResponses, NakCodes) {
  struct Case {
    wire::NakCode code;
    Status status;
  };
  for (const Case& test :
       {Case{wire::NakCode::kInvalidRequest, Status::kRemoteInvalidRequest},
        Case{wire::NakCode::kRemoteAccessError, Status::kRemoteAccessError},
        Case{wire::NakCode::kRemoteOperationalError, Status::kRemoteOperationError}}) {
    Victim victim;
    ask(victim, SendOpcode::kSend, 8);
    ask(victim, SendOpcode::kSend, 8);
    ask(victim, SendOpcode::kSend, 8);
    const auto code = static_cast<std::uint8_t>(test.code);
    EXPECT_TRUE(victim.ask(answer(victim, Aeth::Kind::kNak, code, kPsn + 1)).empty());
    ASSERT_EQ(victim.end.sent.completions.size(), 3u);
    EXPECT_EQ(victim.end.sent.completions[0].status, Status::kSuccess);
    EXPECT_EQ(victim.end.sent.completions[1].status, test.status);
    EXPECT_EQ(victim.end.sent.completions[2].status, Status::kFlushError);
    EXPECT_FALSE(victim.alive());
  }
}

/// Sequence NAKs share retry_cnt, and a flood of one and the same is one sign of one loss: it
/// brings one retransmission, not a storm.
TEST_F(HostileResponses, FloodOfSequenceNaks) {
  Victim victim;
  ask(victim, SendOpcode::kSend, 8);
  std::size_t sent = 0;
  for (int i = 0; i < 1000; ++i)
    sent += victim.ask(answer(victim, Aeth::Kind::kNak, 0, kPsn)).size();
  EXPECT_EQ(sent, 1u);
  EXPECT_TRUE(victim.alive());
  expect_done(victim, answer(victim, Aeth::Kind::kAck, 31, kPsn));
}

/// READ responses and atomic acknowledgements in place of the acknowledgement of a SEND or WRITE.
TEST_F(HostileResponses, AnswersOfAnotherKind) {
  for (const SendOpcode opcode : {SendOpcode::kSend, SendOpcode::kWrite}) {
    for (const Opcode wrong : kResponses) {
      if (wrong == Opcode::kRcAcknowledge) continue;
      SCOPED_TRACE(wire::info(wrong).name);
      Victim victim;
      ask(victim, opcode, 8);
      const std::size_t payload = wire::info(wrong).has_payload ? 8 : 0;
      expect_failed(victim, response(victim, wrong, kPsn, payload), Status::kBadResponseError);
    }
  }
  Victim reader;
  ask(reader, SendOpcode::kRead, 8);
  expect_failed(reader, response(reader, Opcode::kRcAtomicAcknowledge, kPsn),
                Status::kBadResponseError);
}

/// A READ response of another length than asked ends the READ, and no byte of it is placed.
TEST_F(HostileResponses, ReadResponsesOfTheWrongLength) {
  struct Case {
    std::uint32_t index;
    Opcode opcode;
    std::vector<std::size_t> sizes;
  };
  const Case cases[] = {
      {0, Opcode::kRcReadResponseFirst, {0, 1, 1023, 1025, 2048, 2500, 4096}},
      {1, Opcode::kRcReadResponseMiddle, {0, 1, 1023, 1025, 2048}},
      {2, Opcode::kRcReadResponseLast, {0, 1, 451, 453, 1024, 4096}},
  };
  for (const Case& test : cases) {
    for (const std::size_t size : test.sizes) {
      SCOPED_TRACE(std::string(wire::info(test.opcode).name) + " of " + std::to_string(size));
      Victim victim;
      ask(victim, SendOpcode::kRead, kReadLength);
      answer_read(victim, test.index);
      expect_failed(victim, response(victim, test.opcode, kPsn + test.index, size),
                    Status::kLocalLengthError);
    }
  }
  for (const std::size_t size : {0u, 7u, 9u, 1024u, 8192u}) {
    Victim victim;
    ask(victim, SendOpcode::kRead, 8);
    expect_failed(victim, response(victim, Opcode::kRcReadResponseOnly, kPsn, size),
                  Status::kLocalLengthError);
  }
}

/// A READ response that stands elsewhere in its message than the packet that was asked for carries
/// an opcode that nobody expects there (IBV_WC_BAD_RESP_ERR), whatever its length.
TEST_F(HostileResponses, ReadResponsesInTheWrongPlace) {
  constexpr Opcode kRight[] = {Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle,
                               Opcode::kRcReadResponseLast};
  for (const Opcode opcode : kReadResponses) {
    for (std::uint32_t index = 0; index < std::size(kRight); ++index) {
      for (const std::size_t size : {std::size_t{0}, std::size_t{1024}, std::size_t{452}}) {
        if (opcode == kRight[index]) continue;
        SCOPED_TRACE(std::string(wire::info(opcode).name) + " of " + std::to_string(size) + " at " +
                     std::to_string(index));
        Victim victim;
        ask(victim, SendOpcode::kRead, kReadLength);
        answer_read(victim, index);
        expect_failed(victim, response(victim, opcode, kPsn + index, size),
                      Status::kBadResponseError);
      }
    }
    if (opcode == Opcode::kRcReadResponseOnly) continue;
    SCOPED_TRACE(std::string(wire::info(opcode).name) + " instead of ONLY");
    Victim victim;
    ask(victim, SendOpcode::kRead, 8);
    expect_failed(victim, response(victim, opcode, kPsn, 8), Status::kBadResponseError);
  }
  Victim victim;
  ask(victim, SendOpcode::kRead, kReadLength);
  answer_read(victim, 2);
  expect_done(victim, response(victim, Opcode::kRcReadResponseLast, kPsn + 2, 452));
}

/// The answer to a retry that asks for a tail begins with FIRST (our responder) or goes on with
/// MIDDLE (rxe, and what was under way before the retry): both are right, there and nowhere else.
TEST_F(HostileResponses, ReadResponsesToARetry) {
  struct Case {
    std::uint32_t lost;           ///< from this packet on
    std::vector<Opcode> answers;  ///< to the retry
    std::uint32_t right;          ///< so many of them are accepted
  };
  using enum Opcode;
  const Case cases[] = {
      {1, {kRcReadResponseFirst, kRcReadResponseLast}, 2},
      {1, {kRcReadResponseMiddle, kRcReadResponseLast}, 2},
      {1, {kRcReadResponseLast}, 0},
      {1, {kRcReadResponseOnly}, 0},
      {1, {kRcReadResponseFirst, kRcReadResponseOnly}, 1},
      {1, {kRcReadResponseMiddle, kRcReadResponseFirst}, 1},
      {2, {kRcReadResponseOnly}, 1},
      {2, {kRcReadResponseLast}, 1},
      {2, {kRcReadResponseFirst}, 0},
      {2, {kRcReadResponseMiddle}, 0},
      {0, {kRcReadResponseFirst, kRcReadResponseMiddle, kRcReadResponseLast}, 3},
      {0, {kRcReadResponseMiddle}, 0},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(std::to_string(test.lost) + ", " + std::string(wire::info(test.answers[0]).name));
    Victim victim;
    ask(victim, SendOpcode::kRead, kReadLength);
    answer_read(victim, test.lost);
    // A sign of loss: an ACK of the whole READ.
    const auto again = victim.ask(answer(victim, Aeth::Kind::kAck, 31, kPsn + 2));
    ASSERT_EQ(again.size(), 1u);
    ASSERT_EQ(again.front().packet.bth.psn, kPsn + test.lost);
    for (std::uint32_t i = 0; i < test.answers.size(); ++i) {
      const std::uint32_t index = test.lost + i;
      const bool last = index == 2;
      const wire::Packet packet =
          response(victim, test.answers[i], kPsn + index, last ? 452 : 1024);
      if (i == test.right) {
        expect_failed(victim, packet, Status::kBadResponseError);
      } else if (last) {
        expect_done(victim, packet);
      } else {
        EXPECT_TRUE(victim.ask(packet).empty());
        EXPECT_TRUE(victim.alive());
        victim.expect_changes_only_in(Victim::kLocal, Victim::kLocal + kReadLength);
      }
    }
  }
}

/// A gap in the responses is a loss: nothing is placed, and the rest is asked for once more
/// (engine.md, "Requester": a later response means theirs was lost, retry).
TEST_F(HostileResponses, ReadResponsesOutOfOrder) {
  for (const std::uint32_t got : {0u, 1u}) {
    Victim victim;
    ask(victim, SendOpcode::kRead, kReadLength);
    for (std::uint32_t i = 0; i < got; ++i) {
      static_cast<void>(victim.ask(response(victim, Opcode::kRcReadResponseFirst, kPsn + i, 1024)));
    }
    victim.expect_changes_only_in(Victim::kLocal, Victim::kLocal + got * 1024);
    const std::size_t size = got == 0 ? 1024 : 452;
    const auto again =
        victim.ask(response(victim, Opcode::kRcReadResponseLast, kPsn + got + 1, size));
    victim.expect_untouched();
    ASSERT_EQ(again.size(), 1u);
    const wire::Packet& request = again.front().packet;
    EXPECT_EQ(request.bth.opcode, Opcode::kRcReadRequest);
    EXPECT_EQ(request.bth.psn, kPsn + got);
    EXPECT_EQ(request.reth.address, 0x1000u + got * 1024);
    EXPECT_EQ(request.reth.dma_length, kReadLength - got * 1024);
    EXPECT_TRUE(victim.end.sent.completions.empty());
  }
}

/// Repeated responses are placed once: what came before is a ghost, and the program may by now use
/// the bytes.
TEST_F(HostileResponses, ReadResponsesThatComeTwice) {
  Victim victim;
  ask(victim, SendOpcode::kRead, kReadLength);
  const wire::Packet first = response(victim, Opcode::kRcReadResponseFirst, kPsn, 1024);
  EXPECT_TRUE(victim.ask(first).empty());
  std::fill_n(victim.storage.begin() + Victim::kLocal, 1024, std::byte{0x77});
  victim.expect_changes_only_in(Victim::kLocal, Victim::kLocal + 1024);
  expect_ignored(victim, first);
  EXPECT_EQ(victim.counters().ghost_responses, 1u);
}

/// An ACK says nothing about a READ or an atomic whose own response is missing (engine.md,
/// "Requester"): no completion, and the request goes out again.
TEST_F(HostileResponses, AcknowledgementsOfReadsAndAtomics) {
  for (const SendOpcode opcode :
       {SendOpcode::kRead, SendOpcode::kFetchAdd, SendOpcode::kCompareSwap}) {
    Victim victim;
    ask(victim, opcode, 8);
    const auto again = victim.ask(answer(victim, Aeth::Kind::kAck, 31, kPsn));
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again.front().packet.bth.psn, kPsn);
    EXPECT_TRUE(victim.end.sent.completions.empty());
    victim.expect_untouched();
    EXPECT_EQ(victim.counters().retransmitted, 1u);
  }
}

/// Responses and requests do not touch each other: a response's PSN is none of the responder's.
TEST_F(HostileResponses, LeaveTheResponderAlone) {
  Victim victim;
  for (const Opcode opcode : kResponses) {
    const std::size_t payload = wire::info(opcode).has_payload ? 1024 : 0;
    expect_ignored(victim, response(victim, opcode, Victim::kExpected, payload));
  }
  const auto answers = victim.ask(victim.request(Opcode::kRcWriteOnly, Victim::kExpected, 8));
  ASSERT_EQ(outcome_of(answers), Outcome::kAck);
  EXPECT_EQ(answers.front().packet.aeth.msn, 1u);
}

}  // namespace
}  // namespace verbena::conformance
