// SPDX-License-Identifier: Apache-2.0
//
// Bytes that are no packet for this queue pair: each is dropped and counted, and leaves queue pair
// and memory as they were.
#include <gtest/gtest.h>

#include <vector>

#include "conformance/victim.h"

namespace verbena::conformance {
namespace {

using wire::Opcode;

constexpr std::size_t kBth = 12;
constexpr std::size_t kIcrc = 4;

std::vector<std::byte> bytes_of(const wire::Packet& packet) {
  std::vector<std::byte> bytes(wire::encoded_size(packet));
  wire::encode(packet, bytes);
  return bytes;
}

void deliver(Victim& victim, ConstBytes bytes) {
  victim.end.deliver(
      bytes, {.source = victim.end.config().remote, .destination = victim.end.config().local});
}

/// The queue pair still does what a good peer asks for.
void expect_usable(Victim& victim) {
  ASSERT_TRUE(victim.alive());
  EXPECT_EQ(outcome_of(victim.ask(victim.request(Opcode::kRcWriteOnly, Victim::kExpected, 8))),
            Outcome::kAck);
  victim.expect_changes_only_in(Victim::kRemote, Victim::kRemote + 8);
}

/// Whether a datagram of `size` bytes can be a packet of this opcode (engine.md, "On the wire":
/// BTH, the opcode's headers, payload padded to four bytes, ICRC). Written from the opcodes' rows
/// and not from the parser.
bool well_formed(const wire::OpcodeInfo& row, std::size_t size, std::uint8_t pad) {
  if (!row.known || size < kBth + kIcrc || size < row.header_size + kIcrc) return false;
  const std::size_t rest = size - row.header_size - kIcrc;
  if (rest % 4 != 0 || rest < pad) return false;
  return rest == 0 || row.has_payload;
}

/// A dropped packet raises exactly one counter. Congestion notifications are let through to nobody
/// while congestion control is off (engine.md, "On the wire").
void expect_dropped(Victim& victim, const wire::OpcodeInfo& row, bool formed) {
  const engine::Counters& counters = victim.counters();
  const bool congestion = formed && row.transport == wire::Transport::kCnp;
  EXPECT_EQ(counters.malformed, formed ? 0u : 1u);
  EXPECT_EQ(counters.wrong_transport, formed && !congestion ? 1u : 0u);
  EXPECT_TRUE(victim.end.collect().empty());
  victim.expect_untouched();
  EXPECT_TRUE(victim.alive());
}

TEST(HostileBytes, EveryLengthOfEveryOpcode) {
  constexpr std::size_t kPayload = 62;
  constexpr std::size_t kBeyond = 9;
  for (unsigned value = 0; value < 256; ++value) {
    const auto opcode = static_cast<Opcode>(value);
    const wire::OpcodeInfo& row = wire::info(opcode);
    if (!row.known) continue;
    SCOPED_TRACE(row.name);
    Victim model;
    std::vector<std::byte> bytes =
        bytes_of(model.request(opcode, Victim::kExpected, row.has_payload ? kPayload : 0));
    const std::uint8_t pad = row.has_payload ? 2 : 0;
    bytes.resize(bytes.size() + kBeyond, std::byte{0x33});
    for (std::size_t size = 0; size <= bytes.size(); ++size) {
      SCOPED_TRACE(size);
      Victim victim;
      victim.post_receives(1);
      deliver(victim, ConstBytes(bytes).first(size));
      const bool formed = well_formed(row, size, pad);
      if (!formed || row.transport != wire::Transport::kRc) {
        expect_dropped(victim, row, formed);
        continue;
      }
      // A shorter or longer packet whose ICRC was right would be a packet of its own: it is
      // executed or refused, within its region or receive.
      EXPECT_EQ(victim.counters().malformed, 0u);
      static_cast<void>(victim.end.collect());
      if (row.operation == wire::Operation::kSend) {
        victim.expect_changes_only_in(Victim::kLocal, Victim::kLocal + kPayload + kBeyond + 2);
      } else {
        victim.expect_changes_only_in(Victim::kRemote, Victim::kRemote + kPayload + kBeyond + 2);
      }
    }
  }
}

TEST(HostileBytes, EveryOpcodeValue) {
  for (unsigned value = 0; value < 256; ++value) {
    const auto opcode = static_cast<Opcode>(value);
    const wire::OpcodeInfo& row = wire::info(opcode);
    if (row.known && row.transport == wire::Transport::kRc) continue;
    SCOPED_TRACE(value);
    Victim victim;
    std::vector<std::byte> bytes = bytes_of(victim.request(Opcode::kRcWriteOnly, 100, 32));
    bytes[0] = static_cast<std::byte>(value);
    // A whole WRITE's bytes under another opcode: well formed or not, never for an RC queue pair.
    deliver(victim, bytes);
    expect_dropped(victim, row, well_formed(row, bytes.size(), 0));
    expect_usable(victim);
  }
}

TEST(HostileBytes, EveryPadWithoutPayload) {
  for (const Opcode opcode : {Opcode::kRcSendOnly, Opcode::kRcWriteOnly, Opcode::kRcReadRequest,
                              Opcode::kRcFetchAdd, Opcode::kRcAcknowledge}) {
    for (std::uint8_t pad = 1; pad < 4; ++pad) {
      Victim victim;
      victim.post_receives(1);
      std::vector<std::byte> bytes = bytes_of(victim.request(opcode, Victim::kExpected));
      bytes[1] |= static_cast<std::byte>(pad << 4);
      deliver(victim, bytes);
      expect_dropped(victim, wire::info(opcode), false);
      expect_usable(victim);
    }
  }
}

TEST(HostileBytes, EveryTransportVersionButZero) {
  for (unsigned version = 1; version < 16; ++version) {
    Victim victim;
    std::vector<std::byte> bytes = bytes_of(victim.request(Opcode::kRcWriteOnly, 100, 32));
    bytes[1] |= static_cast<std::byte>(version);
    deliver(victim, bytes);
    expect_dropped(victim, wire::info(Opcode::kRcWriteOnly), false);
    expect_usable(victim);
  }
}

/// Low 15 bits equal, and we are a full member: anything else is a silent drop (C9-41..43).
TEST(HostileBytes, EveryPartitionBit) {
  for (unsigned bit = 0; bit < 15; ++bit) {
    for (const unsigned member : {0x8000u, 0u}) {
      Victim victim;
      wire::Packet packet = victim.request(Opcode::kRcWriteOnly, Victim::kExpected, 8);
      packet.bth.pkey = static_cast<std::uint16_t>((0x7FFFu ^ (1u << bit)) | member);
      EXPECT_TRUE(victim.ask(packet).empty());
      EXPECT_EQ(victim.counters().wrong_pkey, 1u);
      victim.expect_untouched();
      expect_usable(victim);
    }
  }
  Victim victim;
  wire::Packet limited = victim.request(Opcode::kRcWriteOnly, Victim::kExpected, 8);
  limited.bth.pkey = 0x7FFF;
  EXPECT_EQ(outcome_of(victim.ask(limited)), Outcome::kAck);
}

/// QP0 is dropped (engine.md, "On the wire"), as is every number that nobody has, among them those
/// that share the number's low bits.
TEST(HostileBytes, OtherQueuePairNumbers) {
  for (const std::uint32_t number : {0u, 1u, Victim::kNumber ^ 1u, Victim::kNumber + 4,
                                     Victim::kNumber | 0x800000, Victim::kPeer, 0xFFFFFFu}) {
    Victim victim;
    wire::Packet packet = victim.request(Opcode::kRcWriteOnly, Victim::kExpected, 8);
    packet.bth.destination_qp = number;
    EXPECT_TRUE(victim.ask(packet).empty());
    EXPECT_EQ(victim.counters().unknown_qp, 1u);
    victim.expect_untouched();
    expect_usable(victim);
  }
}

/// A connected queue pair has one peer; a packet from another address is dropped (counter
/// wrong_source of engine.h).
TEST(HostileBytes, StrangersAddresses) {
  for (const char* source : {"127.0.0.3", "127.0.0.2", "::1", "::127.0.0.1"}) {
    for (const Opcode opcode : {Opcode::kRcWriteOnly, Opcode::kRcAcknowledge}) {
      Victim victim;
      const auto bytes = bytes_of(
          victim.request(opcode, Victim::kExpected, opcode == Opcode::kRcWriteOnly ? 8 : 0));
      victim.end.deliver(bytes, {.source = wire::Address::from_string(source).value(),
                                 .destination = victim.end.config().local});
      EXPECT_TRUE(victim.end.collect().empty());
      EXPECT_EQ(victim.counters().wrong_source, 1u) << source;
      victim.expect_untouched();
      expect_usable(victim);
    }
  }
}

TEST(HostileBytes, QueuePairsThatDoNotReceive) {
  for (const engine::QpState state :
       {engine::QpState::kErr, engine::QpState::kReset, engine::QpState::kInit}) {
    Victim victim;
    engine::QpAttributes attributes;
    attributes.state = state == engine::QpState::kErr ? state : engine::QpState::kReset;
    ASSERT_TRUE(victim.end.engine.modify(*victim.end.qp, attributes, engine::kMaskState, Time{}));
    if (state == engine::QpState::kInit) {
      attributes = {.state = state, .port = 1};
      ASSERT_TRUE(victim.end.engine.modify(
          *victim.end.qp, attributes,
          engine::kMaskState | engine::kMaskPkeyIndex | engine::kMaskPort | engine::kMaskAccess,
          Time{}));
    }
    EXPECT_TRUE(victim.ask(victim.request(Opcode::kRcWriteOnly, Victim::kExpected, 8)).empty());
    EXPECT_EQ(victim.counters().wrong_state, 1u);
    victim.expect_untouched();
  }
}

/// UD (engine.md, "On the wire" and "Responder"): a wrong Q_Key, an oversized datagram and a
/// missing receive are dropped, as is every opcode of another transport.
TEST(HostileBytes, Datagrams) {
  struct Case {
    const char* name;
    Opcode opcode;
    std::size_t payload;
    std::uint32_t qkey;
    Counter engine::Counters::* counter;
  };
  const Case cases[] = {
      {"Q_Key", Opcode::kUdSendOnly, 16, Victim::kQkey ^ 1, &engine::Counters::wrong_qkey},
      {"Q_Key top bit", Opcode::kUdSendOnly, 16, Victim::kQkey | 0x8000'0000,
       &engine::Counters::wrong_qkey},
      {"longer than the MTU", Opcode::kUdSendOnly, 1028, Victim::kQkey,
       &engine::Counters::oversized_datagrams},
      {"longer than the receive", Opcode::kUdSendOnlyImm, 1024, Victim::kQkey,
       &engine::Counters::oversized_datagrams},
      {"RC", Opcode::kRcSendOnly, 16, 0, &engine::Counters::wrong_transport},
      {"RC WRITE", Opcode::kRcWriteOnly, 16, 0, &engine::Counters::wrong_transport},
      {"UC", Opcode::kUcSendOnly, 16, 0, &engine::Counters::wrong_transport},
      {"XRC", Opcode::kXrcSendOnly, 16, 0, &engine::Counters::wrong_transport},
      {"ACK", Opcode::kRcAcknowledge, 0, 0, &engine::Counters::wrong_transport},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    Victim victim({.type = engine::QpType::kUd});
    victim.post_receives(1, 1063);
    wire::Packet packet = victim.request(test.opcode, 0, test.payload);
    packet.deth.qkey = test.qkey;
    EXPECT_TRUE(victim.ask(packet).empty());
    EXPECT_EQ(victim.counters().*test.counter, 1u);
    victim.expect_untouched();
    EXPECT_TRUE(victim.end.received.completions.empty());
    // The receive is still there for a good one.
    static_cast<void>(victim.ask(victim.request(Opcode::kUdSendOnly, 0, 16)));
    EXPECT_EQ(victim.end.received.completions.size(), 1u);
    victim.expect_changes_only_in(Victim::kLocal, Victim::kLocal + 56);
    static_cast<void>(victim.ask(victim.request(Opcode::kUdSendOnly, 0, 16)));
    EXPECT_EQ(victim.counters().no_receive, 1u);
    EXPECT_TRUE(victim.alive());
  }
}

}  // namespace
}  // namespace verbena::conformance
