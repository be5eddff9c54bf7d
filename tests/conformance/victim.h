// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "conformance/endpoint.h"
#include "conformance/test_memory.h"
#include "engine/key_table.h"
#include "wire/packet.h"

namespace verbena::conformance {

/// One reliable connected queue pair with the real key table, at which hostile packets are thrown,
/// and all the memory around its regions, of which none may change that should not.
class Victim {
 public:
  static constexpr std::uint32_t kNumber = 0x111;
  static constexpr std::uint32_t kPeer = 0x222;
  static constexpr std::uint32_t kExpected = 100;   ///< PSN
  static constexpr std::uint32_t kNextSend = 5000;  ///< PSN of its own first request
  static constexpr std::size_t kStorage = 1 << 16;
  static constexpr std::size_t kRemote = 1 << 14;  ///< where the region that the peer knows starts
  static constexpr std::size_t kLocal = 1 << 15;   ///< and the one for receives
  static constexpr std::size_t kLength = 1 << 13;
  static constexpr std::uint64_t kAddress =
      0x7000'0000'0000;  ///< of the peer's region, to the peer

  struct Options {
    std::uint32_t mtu = 1024;
    std::uint32_t expected = kExpected;
    std::uint32_t access =
        engine::kRemoteWrite | engine::kRemoteRead | engine::kRemoteAtomic | engine::kFlushGlobal;
    std::uint8_t rd_atomic = 4;
    engine::QpType type = engine::QpType::kRc;
    std::uint32_t region_access = engine::kLocalWrite | engine::kRemoteWrite | engine::kRemoteRead |
                                  engine::kRemoteAtomic | engine::kFlushGlobal;
    std::uint8_t retries = 7;
  };
  static constexpr std::uint32_t kQkey = 0x1111;

  Victim() : Victim(Options()) {}
  explicit Victim(const Options& options)
      : storage(kStorage),
        keys(16, 42),
        rkey(insert(kAddress, kRemote, options.region_access, TestMemory::kPd)),
        window_key(insert_window()),
        foreign_key(insert(kAddress, kRemote, options.region_access, TestMemory::kPd + 1)),
        local_key(insert(kLocalAddress, kLocal, engine::kLocalWrite, TestMemory::kPd)),
        end({.type = options.type,
             .local = wire::Address::from_ipv4(0x7F000002),
             .remote = wire::Address::from_ipv4(0x7F000001),
             .local_qp = kNumber,
             .remote_qp = kPeer,
             .sq_psn = kNextSend,
             .rq_psn = options.expected,
             .mtu = options.mtu,
             .access = options.access,
             .rd_atomic = options.rd_atomic,
             .retries = options.retries,
             .rnr_timer = 1,
             .qkey = kQkey},
            keys) {
    for (std::size_t i = 0; i < storage.size(); ++i)
      storage[i] = static_cast<std::byte>((i * 31 + 7) % 253);
    before_ = storage;
  }

  /// A request as a good peer would make it, to the start of the region.
  [[nodiscard]] wire::Packet request(wire::Opcode opcode, std::uint32_t psn,
                                     std::size_t payload = 0) const {
    static const std::vector<std::byte> data(kStorage, std::byte{0x5A});
    wire::Packet packet;
    packet.bth.opcode = opcode;
    packet.bth.destination_qp = kNumber;
    packet.bth.psn = psn;
    packet.bth.ack_request = true;
    packet.bth.pad_count = static_cast<std::uint8_t>(-payload & 3);
    packet.deth = {.qkey = kQkey, .source_qp = kPeer};
    packet.reth = {
        .address = kAddress, .rkey = rkey, .dma_length = static_cast<std::uint32_t>(payload)};
    packet.feth.placement = wire::Feth::kGlobalVisibility;
    packet.atomic_eth = {.address = kAddress, .rkey = rkey, .swap_or_add = 5, .compare = 0};
    packet.ieth.rkey = window_key;
    packet.payload = ConstBytes(data).first(payload);
    return packet;
  }
  [[nodiscard]] wire::Packet read(std::uint32_t psn, std::uint32_t length) const {
    wire::Packet packet = request(wire::Opcode::kRcReadRequest, psn);
    packet.reth.dma_length = length;
    return packet;
  }

  /// Delivers and returns what is answered.
  std::deque<SentPacket> ask(const wire::Packet& packet) {
    end.deliver(packet);
    return end.collect();
  }

  void post_receives(std::uint32_t count, std::uint32_t length = kLength) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const engine::Sge piece{kLocalAddress, length, local_key};
      end.receive(i, std::span(&piece, 1));
    }
  }

  /// Nothing has changed but bytes [first, last) of `storage`; what is there now is the new state.
  void expect_changes_only_in(std::size_t first, std::size_t last) {
    const auto differs = [&](std::size_t from, std::size_t to) {
      const auto at = [](std::size_t index) { return static_cast<std::ptrdiff_t>(index); };
      return !std::equal(storage.begin() + at(from), storage.begin() + at(to),
                         before_.begin() + at(from));
    };
    EXPECT_FALSE(differs(0, first));
    EXPECT_FALSE(differs(last, storage.size()));
    before_ = storage;
  }
  void expect_untouched() { expect_changes_only_in(0, 0); }

  [[nodiscard]] const engine::Counters& counters() const { return end.counters(); }
  [[nodiscard]] bool alive() const { return end.state() == engine::QpState::kRts; }

  static constexpr std::uint64_t kLocalAddress = 0x10000;

  std::vector<std::byte> storage;
  engine::KeyTable keys;
  std::uint32_t rkey;
  std::uint32_t window_key;
  std::uint32_t foreign_key;
  std::uint32_t local_key;
  Endpoint end;

 private:
  std::uint32_t insert(std::uint64_t address, std::size_t offset, std::uint32_t access,
                       std::uint32_t pd) {
    return keys
        .insert({.base = storage.data() + offset,
                 .address = address,
                 .length = kLength,
                 .access = access,
                 .pd = pd})
        .value();
  }

  /// One of type 2, bound for the victim's queue pair.
  std::uint32_t insert_window() {
    constexpr auto kRights = engine::kLocalWrite | engine::kWindowBind;
    const std::uint32_t region = insert(kAddress, kRemote, kRights, TestMemory::kPd);
    const std::uint32_t key =
        keys.insert({.pd = TestMemory::kPd, .window = engine::WindowType::kType2}).value();
    keys.bind({.key = key,
               .region_key = region,
               .address = kAddress,
               .length = kLength,
               .access = engine::kRemoteWrite},
              {.pd = TestMemory::kPd, .qp_number = kNumber})
        .value();
    return key;
  }

  std::vector<std::byte> before_;
};

/// What one hostile packet leads to.
enum class Outcome : std::uint8_t {
  kAck,       ///< positive acknowledgement
  kResponse,  ///< READ response or atomic acknowledgement
  kNakSequence,
  kNakInvalid,
  kNakAccess,
  kSilence,
};

[[nodiscard]] inline Outcome outcome_of(const std::deque<SentPacket>& answers) {
  if (answers.empty()) return Outcome::kSilence;
  const wire::Packet& packet = answers.front().packet;
  if (packet.bth.opcode != wire::Opcode::kRcAcknowledge) return Outcome::kResponse;
  if (packet.aeth.kind == wire::Aeth::Kind::kAck) return Outcome::kAck;
  EXPECT_EQ(packet.aeth.kind, wire::Aeth::Kind::kNak);
  switch (static_cast<wire::NakCode>(packet.aeth.value)) {
    case wire::NakCode::kSequenceError: return Outcome::kNakSequence;
    case wire::NakCode::kInvalidRequest: return Outcome::kNakInvalid;
    case wire::NakCode::kRemoteAccessError: return Outcome::kNakAccess;
    default: ADD_FAILURE() << "NAK code " << int{packet.aeth.value}; return Outcome::kSilence;
  }
}

/// Whether an outcome ends the queue pair.
[[nodiscard]] constexpr bool fatal(Outcome outcome) {
  return outcome == Outcome::kNakInvalid || outcome == Outcome::kNakAccess;
}

/// What must follow a request: the answer with the right PSN, and the queue pair in ERR after a
/// fatal NAK, alive after anything else.
inline void expect_outcome(Victim& victim, const std::deque<SentPacket>& answers, Outcome outcome,
                           std::uint32_t psn) {
  ASSERT_EQ(outcome_of(answers), outcome);
  EXPECT_EQ(victim.alive(), !fatal(outcome));
  if (outcome != Outcome::kSilence) {
    EXPECT_EQ(answers.front().packet.bth.psn, psn);
  }
  if (fatal(outcome)) {
    EXPECT_EQ(answers.size(), 1u);
    EXPECT_EQ(engine::naks_sent(victim.counters()), 1u);
  }
}

/// All request opcodes of a reliable connection.
inline constexpr wire::Opcode kRequests[] = {
    wire::Opcode::kRcSendFirst,   wire::Opcode::kRcSendMiddle,   wire::Opcode::kRcSendLast,
    wire::Opcode::kRcSendLastImm, wire::Opcode::kRcSendLastInv,  wire::Opcode::kRcSendOnly,
    wire::Opcode::kRcSendOnlyImm, wire::Opcode::kRcSendOnlyInv,  wire::Opcode::kRcWriteFirst,
    wire::Opcode::kRcWriteMiddle, wire::Opcode::kRcWriteLast,    wire::Opcode::kRcWriteLastImm,
    wire::Opcode::kRcWriteOnly,   wire::Opcode::kRcWriteOnlyImm, wire::Opcode::kRcReadRequest,
    wire::Opcode::kRcFetchAdd,    wire::Opcode::kRcCompareSwap,  wire::Opcode::kRcAtomicWrite,
    wire::Opcode::kRcFlush};

}  // namespace verbena::conformance
