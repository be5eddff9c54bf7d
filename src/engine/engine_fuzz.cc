// SPDX-License-Identifier: Apache-2.0
// Hostile packets against an engine with a connected and a datagram queue pair that are in the
// middle of work. The input is a list of packets (two bytes of length each); some of their fields
// are mended so that they get past the first checks. Memory outside the registered region must
// never change.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "engine/engine.h"
#include "engine/key_table.h"
#include "engine/queue_pair.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kPd = 1;
constexpr std::uint32_t kRcNumber = 0x111;
constexpr std::uint32_t kUdNumber = 0x112;
constexpr std::uint32_t kQkey = 0x1111;
constexpr std::size_t kGuard = 4096;
constexpr std::size_t kRegion = 8192;
constexpr std::uint64_t kIova = 0x10000;
constexpr std::byte kCanary{0xA5};
constexpr std::size_t kMaxCompletions = 4096;

struct Counter final : CompletionSink {
  bool complete(const Completion&) override { return ++count <= kMaxCompletions; }
  std::size_t count = 0;
};

class Victim {
 public:
  Victim() {
    key_ = keys_
               .insert({.base = memory_.data() + kGuard,
                        .address = kIova,
                        .length = kRegion,
                        .access =
                            kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic | kFlushGlobal,
                        .pd = kPd})
               .value();
    rc_ = create(kRcNumber, QpType::kRc, rc_sends_, rc_receives_);
    ud_ = create(kUdNumber, QpType::kUd, ud_sends_, ud_receives_);
    engine_.attach(*ud_, group_);
    bring_up();
    work();
  }

  void packet(ConstBytes input, std::uint8_t mend) {
    std::vector<std::byte> bytes(input.begin(), input.end());
    if (bytes.size() >= wire::Bth::kSize) mend_fields(bytes, mend);
    const wire::Path path{.source = peer_,
                          .destination = (mend & 0x80) != 0 ? group_ : self_,
                          .traffic_class = static_cast<std::uint8_t>((mend & 0x40) != 0 ? 3 : 0)};
    const wire::Segment segment{.datagram = bytes, .path = path};
    engine_.handle_batch(std::span(&segment, 1), now_);
    now_ += std::chrono::milliseconds((mend & 0x40) != 0 ? 100 : 0);
    engine_.handle_timeout(now_);
    std::array<wire::Train, 8> trains;
    for (int round = 0; round < 64; ++round) {
      const std::size_t count = engine_.poll_transmit(now_, trains, Acks::kSend);
      if (count == 0) break;
      for (const wire::Train& train : std::span(trains).first(count)) encode(train);
    }
    while (engine_.poll_event()) {}
  }

  void check() const {
    const auto canary = [](std::byte byte) { return byte == kCanary; };
    VERBENA_CHECK(std::all_of(memory_.begin(), memory_.begin() + kGuard, canary));
    VERBENA_CHECK(std::all_of(memory_.end() - kGuard, memory_.end(), canary));
  }

 private:
  QueuePair* create(std::uint32_t number, QpType type, SendQueue& sends, ReceiveQueue& receives) {
    return engine_
        .create({.number = number,
                 .type = type,
                 .pd = kPd,
                 .send_queue = &sends,
                 .receives = &receives,
                 .send_completions = &completions_,
                 .receive_completions = &completions_})
        .value();
  }

  void bring_up() {
    QpAttributes attributes{.state = QpState::kInit,
                            .access = kRemoteWrite | kRemoteRead | kRemoteAtomic | kFlushGlobal,
                            .port = 1};
    attributes.qkey = kQkey;
    modify(*rc_, attributes, kMaskState | kMaskPkeyIndex | kMaskPort | kMaskAccess);
    modify(*ud_, attributes, kMaskState | kMaskPkeyIndex | kMaskPort | kMaskQkey);
    attributes.state = QpState::kRtr;
    attributes.path = {.source = self_, .destination = peer_};
    attributes.path_mtu = 256;
    attributes.destination_qp = 0x222;
    attributes.max_dest_rd_atomic = 2;
    attributes.min_rnr_timer = 1;
    modify(*rc_, attributes,
           kMaskState | kMaskPath | kMaskPathMtu | kMaskDestinationQp | kMaskRqPsn |
               kMaskMaxDestRdAtomic | kMaskMinRnrTimer);
    modify(*ud_, attributes, kMaskState);
    attributes.state = QpState::kRts;
    attributes.max_rd_atomic = 2;
    attributes.retry_count = 7;
    attributes.rnr_retry = 7;
    attributes.timeout = 14;
    modify(*rc_, attributes,
           kMaskState | kMaskSqPsn | kMaskMaxRdAtomic | kMaskRetryCount | kMaskRnrRetry |
               kMaskTimeout);
    modify(*ud_, attributes, kMaskState | kMaskSqPsn);
  }

  void modify(QueuePair& qp, const QpAttributes& attributes, std::uint32_t mask) {
    VERBENA_CHECK(engine_.modify(qp, attributes, mask, now_).has_value());
  }

  /// Receives to consume, and requests whose answers the input may forge.
  void work() {
    const Sge piece{kIova + 16, 1024, key_};
    for (std::uint64_t id = 0; id < 8; ++id) {
      VERBENA_CHECK(rc_receives_.post({.id = id, .pieces = std::span(&piece, 1)}).has_value());
      VERBENA_CHECK(ud_receives_.post({.id = id, .pieces = std::span(&piece, 1)}).has_value());
    }
    for (const SendOpcode opcode : {SendOpcode::kSend, SendOpcode::kRead, SendOpcode::kFetchAdd,
                                    SendOpcode::kWrite, SendOpcode::kRead}) {
      const Sge part{kIova + 64, opcode == SendOpcode::kFetchAdd ? 8u : 700u, key_};
      VERBENA_CHECK(
          rc_sends_.post({.opcode = opcode, .signaled = true, .pieces = std::span(&part, 1)})
              .has_value());
    }
    engine_.posted(*rc_, now_);
    std::array<wire::Train, 8> trains;
    while (engine_.poll_transmit(now_, trains, Acks::kSend) != 0) {}
  }

  /// Some inputs would never get past the first checks: numbers, keys and sizes that fit are put in
  /// by `mend`'s bits.
  void mend_fields(std::vector<std::byte>& bytes, std::uint8_t mend) const {
    wire::Bth bth = wire::Bth::parse(bytes.data());
    if ((mend & 1) != 0) bth.destination_qp = kRcNumber;
    if ((mend & 2) != 0) bth.destination_qp = kUdNumber;
    if ((mend & 0x83) == 0x80) bth.destination_qp = wire::kMulticastQp;
    if ((mend & 4) != 0) bth.pkey = 0xFFFF;
    if ((mend & 8) != 0) bth.psn &= 0xF;
    if ((mend & 16) != 0) bth.version = 0;
    bth.encode(bytes.data());
    if ((mend & 32) == 0 || bytes.size() < wire::Bth::kSize + wire::Reth::kSize) return;
    store_be<std::uint32_t>(bytes.data() + wire::Bth::kSize, 0);
    store_be<std::uint32_t>(bytes.data() + wire::Bth::kSize + 8, key_);
  }

  static void encode(const wire::Train& train) {
    std::vector<std::byte> out;
    for (std::uint32_t i = 0; i < train.count; ++i) {
      const wire::TrainPacket packet = wire::packet_at(train, i);
      out.resize(packet.wire_size());
      wire::write_packet(train, packet, 0, out);
      VERBENA_CHECK(wire::parse(out).has_value());
    }
  }

  Time now_{};
  wire::Address self_ = wire::Address::from_ipv4(0x7F000001);
  wire::Address peer_ = wire::Address::from_ipv4(0x7F000002);
  wire::Address group_ = wire::Address::from_ipv4(0xEF000001);
  std::vector<std::byte> memory_ = std::vector<std::byte>(kRegion + 2 * kGuard, kCanary);
  KeyTable keys_{16, 1};
  Counters counters_;
  Engine engine_{EngineConfig{.max_qp = 2, .max_pieces = 4, .congestion = {.on = true}}, keys_,
                 counters_};
  std::uint32_t key_ = 0;
  SendQueue rc_sends_{16, 4, 0};
  SendQueue ud_sends_{16, 4, 0};
  ReceiveQueue rc_receives_{16, 4, kPd};
  ReceiveQueue ud_receives_{16, 4, kPd};
  Counter completions_;
  QueuePair* rc_ = nullptr;
  QueuePair* ud_ = nullptr;
};

}  // namespace
}  // namespace verbena::engine

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace verbena;
  engine::Victim victim;
  ConstBytes input(reinterpret_cast<const std::byte*>(data), size);
  while (input.size() >= 3) {
    const auto mend = std::to_integer<std::uint8_t>(input[0]);
    const std::size_t length =
        std::min<std::size_t>(load_be<std::uint16_t>(input.data() + 1) % 600, input.size() - 3);
    victim.packet(input.subspan(3, length), mend);
    input = input.subspan(3 + length);
  }
  victim.check();
  return 0;
}
