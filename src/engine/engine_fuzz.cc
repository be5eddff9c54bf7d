// SPDX-License-Identifier: Apache-2.0
// Hostile packets against an engine with queue pairs of every type that are in the middle of work,
// a shared receive queue, receives with tags, an XRC domain and memory windows. The input is a list
// of packets (a byte that says how some of their fields are mended, so that they get past the first
// checks; two bytes, of which six bits do the same for more and the rest is the length). Memory
// outside the registered region, and outside the windows over another one, must never change.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "engine/engine.h"
#include "engine/key_table.h"
#include "engine/queue_pair.h"
#include "engine/test_tagged_receives.h"
#include "wire/icrc.h"

namespace verbena::engine {
namespace {

constexpr std::uint32_t kPd = 1;
constexpr std::uint32_t kOtherPd = 2;
constexpr std::uint32_t kFirstNumber = 0x111;
constexpr std::uint32_t kSrq = 0x332;  ///< the next one is a queue of the other domain
constexpr std::uint32_t kQkey = 0x1111;
constexpr std::size_t kGuard = 4096;
constexpr std::size_t kRegion = 8192;
constexpr std::uint64_t kIova = 0x10000;
constexpr std::uint64_t kClosedIova = 0x20000;  ///< of the region that windows open a part of
constexpr std::size_t kOpenFrom = 2048;
constexpr std::size_t kOpenSize = 1024;
constexpr std::byte kCanary{0xA5};
constexpr std::size_t kMaxCompletions = 4096;
constexpr std::size_t kLongest = 600;
constexpr std::uint32_t kRemote = kRemoteWrite | kRemoteRead | kRemoteAtomic | kFlushGlobal;

struct Counter final : CompletionSink {
  bool complete(const Completion&) override { return ++count <= kMaxCompletions; }
  std::size_t count = 0;
};

/// Receives that several queue pairs take.
class SharedQueue final : public ReceiveSource {
 public:
  explicit SharedQueue(std::uint32_t pd) : queue_(16, 4, pd) {}
  Taken take(ReceiveWqe& wqe, std::uint64_t size) override { return queue_.take(wqe, size); }
  [[nodiscard]] std::uint32_t max_pieces() const override { return queue_.max_pieces(); }
  [[nodiscard]] bool shared() const override { return true; }
  void clear() override {}
  [[nodiscard]] ReceiveQueue& queue() { return queue_; }

 private:
  ReceiveQueue queue_;
};

struct Domain final : ReceiveDirectory {
  [[nodiscard]] const NumberedReceives* find(std::uint32_t number) const override {
    return number - kSrq < queues.size() ? &queues[number - kSrq] : nullptr;
  }
  std::array<NumberedReceives, 2> queues;
};

/// A queue pair with its queues. Their numbers follow one another.
enum Which : std::uint8_t { kRc, kUd, kUc, kTarget, kInitiator, kSharing, kTagged, kMembers };
constexpr std::array kTypes = {QpType::kRc,      QpType::kUd, QpType::kUc, QpType::kXrcReceive,
                               QpType::kXrcSend, QpType::kRc, QpType::kRc};
struct Member {
  SendQueue sends{16, 4, 0};
  ReceiveQueue receives{16, 4, kPd};
  QueuePair* qp = nullptr;
};

/// How a packet is mended, from the bits of its header in the input.
struct Mending {
  std::uint8_t bits = 0;
  std::uint8_t more = 0;
  [[nodiscard]] bool marks() const { return (bits & 0x40) != 0; }
  [[nodiscard]] bool to_group() const { return (bits & 0xC0) == 0x80; }
  [[nodiscard]] bool by_channel() const { return (bits & 0xC0) == 0xC0; }
};

class Victim {
 public:
  Victim() {
    enter_keys();
    domain_.queues = {{{.receives = &shared_, .completions = &completions_, .pd = kPd},
                       {.receives = &other_shared_, .completions = &completions_, .pd = kOtherPd}}};
    for (std::uint8_t i = 0; i < kMembers; ++i) create(static_cast<Which>(i));
    engine_.attach(*members_[kUd].qp, group_);
    for (std::uint8_t i = 0; i < kMembers; ++i) bring_up(static_cast<Which>(i));
    open_windows();
    post_receives();
    for (const Which which : {kRc, kUc, kInitiator}) post_sends(which);
    while (engine_.poll_transmit(now_, trains_, Acks::kSend) != 0) {}
  }

  void packet(ConstBytes input, const Mending& mending) {
    std::vector<std::byte> bytes(input.begin(), input.end());
    if (bytes.size() >= wire::Bth::kSize) mend(bytes, mending);
    const wire::Path path{.source = peer_,
                          .destination = mending.to_group() ? group_ : self_,
                          .traffic_class = static_cast<std::uint8_t>(mending.marks() ? 3 : 0),
                          .channel = static_cast<std::uint16_t>(mending.by_channel() ? 1 : 0)};
    deliver(bytes, path, mending.by_channel());
    now_ += std::chrono::milliseconds(mending.marks() ? 100 : 0);
    engine_.handle_timeout(now_);
    for (int round = 0; round < 64; ++round) {
      const std::size_t count = engine_.poll_transmit(now_, trains_, Acks::kSend);
      if (count == 0) break;
      for (const wire::Train& train : std::span(trains_).first(count)) encode(train);
    }
    while (engine_.poll_event()) {}
  }

  /// By itself, or, when its last byte is odd, as the first of three that come together.
  void deliver(const std::vector<std::byte>& bytes, const wire::Path& path, bool undamaged) {
    const bool in_row = !bytes.empty() && (bytes.back() & std::byte{1}) != std::byte{0};
    std::array<std::vector<std::byte>, 3> row;
    std::array<wire::Segment, 3> segments;
    for (std::uint32_t i = 0; i < row.size(); ++i) {
      row[i] = bytes;
      if (bytes.size() >= wire::Bth::kSize) {
        wire::Bth bth = wire::Bth::parse(bytes.data());
        bth.psn = (bth.psn + i) & wire::kMask24;
        bth.encode(row[i].data());
      }
      segments[i] = {.datagram = row[i], .path = path, .undamaged = undamaged};
    }
    engine_.handle_batch(std::span(segments).first(in_row ? row.size() : 1), now_);
  }

  void check() const {
    const auto untouched = [](std::span<const std::byte> bytes) {
      return std::ranges::all_of(bytes, [](std::byte byte) { return byte == kCanary; });
    };
    const std::span all(memory_);
    VERBENA_CHECK(untouched(all.first(kGuard)));
    VERBENA_CHECK(untouched(all.subspan(kGuard + kRegion, kGuard + kOpenFrom)));
    VERBENA_CHECK(untouched(all.subspan(kClosed + kOpenFrom + kOpenSize)));
  }

 private:
  static constexpr std::size_t kClosed = 2 * kGuard + kRegion;

  std::uint32_t enter(const MemoryKey& key) { return keys_.insert(key).value(); }

  void enter_keys() {
    const MemoryKey region{.base = memory_.data() + kGuard,
                           .address = kIova,
                           .length = kRegion,
                           .access = kLocalWrite | kRemote,
                           .pd = kPd};
    key_ = enter(region);
    closed_key_ = enter({.base = memory_.data() + kClosed,
                         .address = kClosedIova,
                         .length = kRegion,
                         .access = kLocalWrite | kWindowBind,
                         .pd = kPd});
    for (const WindowType type : {WindowType::kType1, WindowType::kType2, WindowType::kType2})
      window_keys_.push_back(enter({.pd = kPd, .window = type}));
    MemoryKey other = region;
    other.pd = kOtherPd;
    other_key_ = enter(other);
  }

  void create(Which which) {
    Member& member = members_[which];
    QpConfig config{
        .number = kFirstNumber + which, .type = kTypes[which], .send_queue = &member.sends};
    if (which == kTarget) {
      config.directory = &domain_;
    } else {
      config.pd = kPd;
      config.receives = &member.receives;
      if (which == kSharing) config.receives = &shared_;
      if (which == kTagged) {
        config.send_queue = &tagged_sends_;
        config.receives = &tagged_receives_;
      }
      config.send_completions = config.receive_completions = &completions_;
    }
    member.qp = engine_.create(config).value();
  }

  void bring_up(Which which) {
    QpAttributes attributes{.access = kRemote,
                            .port = 1,
                            .qkey = kQkey,
                            .path = {.source = self_, .destination = peer_},
                            .path_mtu = 256,
                            .timeout = 14,
                            .retry_count = 7,
                            .rnr_retry = 7,
                            .max_rd_atomic = 2,
                            .max_dest_rd_atomic = 2,
                            .min_rnr_timer = 1,
                            .destination_qp = 0x222};
    QpState from = QpState::kReset;
    for (const QpState to : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      attributes.state = to;
      const std::uint32_t mask = kMaskState | transition(kTypes[which], from, to).required;
      VERBENA_CHECK(engine_.modify(*members_[which].qp, attributes, mask, now_).has_value());
      from = to;
    }
  }

  [[nodiscard]] WindowBinding binding(std::size_t window) const {
    return {.key = window_keys_[window],
            .region_key = closed_key_,
            .address = kClosedIova + kOpenFrom,
            .length = kOpenSize,
            .access = kRemote};
  }

  /// The first for all, the second for the RC queue pair, which binds the third itself.
  void open_windows() {
    for (const std::size_t window : {0, 1}) {
      const KeyUser user{.pd = kPd, .qp_number = kFirstNumber + kRc};
      VERBENA_CHECK(keys_.bind(binding(window), user).has_value());
    }
  }

  void post_receives() {
    const Sge piece{kIova + 16, 1024, key_};
    const Sge other{kIova + 16, 1024, other_key_};
    for (std::uint64_t id = 0; id < 8; ++id) {
      const auto post = [&](ReceiveQueue& queue, const Sge& to) {
        VERBENA_CHECK(queue.post({.id = id, .pieces = std::span(&to, 1)}).has_value());
      };
      for (const Which which : {kRc, kUd, kUc}) post(members_[which].receives, piece);
      post(shared_.queue(), piece);
      // Half of what can be thought of has a receive by its tag.
      const TaggedReceive receive{.id = id, .tag = id % 2, .mask = 3, .pieces = {&piece, 1}};
      VERBENA_CHECK(tagged_receives_.list.add(receive).has_value());
      if (id % 2 == 0) post(tagged_receives_.plain, piece);
      post(other_shared_.queue(), other);
    }
  }

  /// Requests whose answers the input may forge.
  void post_sends(Which which) {
    using enum SendOpcode;
    constexpr std::array kAll = {kSend, kWrite,      kRead,        kFetchAdd,
                                 kRead, kBindWindow, kAtomicWrite, kLocalInvalidate};
    constexpr std::size_t kUnreliable = 2;  // the first ones
    constexpr std::size_t kExtended = 5;
    std::size_t count = kExtended;
    if (which == kUc) count = kUnreliable;
    if (which == kRc) count = kAll.size();
    for (const SendOpcode opcode : std::span(kAll).first(count)) {
      const bool word = opcode == kFetchAdd || opcode == kAtomicWrite;
      const bool local = opcode == kBindWindow || opcode == kLocalInvalidate;
      const Sge part{kIova + 64, word ? 8u : 700u, key_};
      const SendRequest request{.opcode = opcode,
                                .signaled = true,
                                .invalidate_rkey = window_keys_[2],
                                .remote_srq = kSrq,
                                .pieces = std::span(&part, local ? 0u : 1u),
                                .binding = binding(2)};
      VERBENA_CHECK(members_[which].sends.post(request).has_value());
    }
    engine_.posted(*members_[which].qp, now_);
  }

  void mend(std::vector<std::byte>& bytes, const Mending& mending) const {
    const std::uint8_t bits = mending.bits;
    wire::Bth bth = wire::Bth::parse(bytes.data());
    if ((bits & 1) != 0) bth.destination_qp = kFirstNumber + kRc;
    if ((bits & 2) != 0) bth.destination_qp = kFirstNumber + ((bits & 1) != 0 ? kTagged : kUd);
    if (mending.to_group() && (bits & 3) == 0) bth.destination_qp = wire::kMulticastQp;
    if (const std::uint32_t member = mending.more & 7; member != 0 && member <= kMembers)
      bth.destination_qp = kFirstNumber + member - 1;
    if ((bits & 4) != 0) bth.pkey = 0xFFFF;
    if ((bits & 8) != 0) bth.psn &= 0xF;
    if ((bits & 16) != 0) bth.version = 0;
    bth.encode(bytes.data());
    if ((bits & 32) != 0) mend_operands(std::span(bytes).subspan(wire::Bth::kSize), bth, mending);
    if (!mending.by_channel() || bytes.size() < wire::Bth::kSize + wire::kIcrcSize) return;
    std::byte* const rider = bytes.data() + bytes.size() - wire::kIcrcSize;
    wire::store_icrc(rider, wire::piggyback(wire::load_icrc(rider) & 0xF));
  }

  /// Keys, addresses and the numbers of receive queues are hard to guess.
  void mend_operands(std::span<std::byte> operands, const wire::Bth& bth,
                     const Mending& mending) const {
    const wire::OpcodeInfo& info = wire::info(bth.opcode);
    if (info.has_xrceth && operands.size() >= wire::XrcEth::kSize) {
      const std::uint32_t low = std::to_integer<std::uint32_t>(operands[3]) & 3;
      store_be<std::uint32_t>(operands.data(), kSrq + low);
      operands = operands.subspan(wire::XrcEth::kSize);
    }
    if (info.has_feth && operands.size() >= wire::Feth::kSize)
      operands = operands.subspan(wire::Feth::kSize);
    const std::array keys = {key_, window_keys_[0], window_keys_[1], window_keys_[2]};
    const std::size_t key = mending.more >> 3 & 3;
    if (info.has_ieth && operands.size() >= wire::Ieth::kSize)
      return store_be<std::uint32_t>(operands.data(), keys[key]);
    if (operands.size() < wire::Reth::kSize) return;
    store_be<std::uint32_t>(operands.data(), 0);
    store_be<std::uint32_t>(operands.data() + 8, keys[key]);
    if ((mending.more & 0x20) == 0) return;
    const std::uint64_t base = key == 0 ? kIova : kClosedIova + kOpenFrom;
    const std::uint64_t offset = load_be<std::uint32_t>(operands.data() + 4) & 0x7FF;
    store_be<std::uint64_t>(operands.data(), base + offset);
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
  std::vector<std::byte> memory_ = std::vector<std::byte>(2 * kRegion + 3 * kGuard, kCanary);
  KeyTable keys_{16, 1};
  Counters counters_;
  Engine engine_{EngineConfig{.max_qp = kMembers, .max_pieces = 4, .congestion = {.on = true}},
                 keys_, counters_};
  std::array<wire::Train, 8> trains_{};
  std::uint32_t key_ = 0;
  std::uint32_t other_key_ = 0;
  std::uint32_t closed_key_ = 0;
  std::vector<std::uint32_t> window_keys_;
  SendQueue tagged_sends_{4, kRendezvousPieces, kRendezvousInline};
  testing::TaggedReceives tagged_receives_{kPd};
  SharedQueue shared_{kPd};
  SharedQueue other_shared_{kOtherPd};
  Domain domain_;
  std::array<Member, kMembers> members_{};
  Counter completions_;
};

}  // namespace
}  // namespace verbena::engine

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace verbena;
  engine::Victim victim;
  ConstBytes input(reinterpret_cast<const std::byte*>(data), size);
  while (input.size() >= 3) {
    const auto coded = load_be<std::uint16_t>(input.data() + 1);
    const engine::Mending mending{.bits = std::to_integer<std::uint8_t>(input[0]),
                                  .more = static_cast<std::uint8_t>(coded >> 10)};
    const std::size_t length =
        std::min<std::size_t>((coded & 0x3FF) % engine::kLongest, input.size() - 3);
    victim.packet(input.subspan(3, length), mending);
    input = input.subspan(3 + length);
  }
  victim.check();
  return 0;
}
