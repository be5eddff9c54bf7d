// SPDX-License-Identifier: Apache-2.0
//
// WRITEs and READs that are one copy between two processes' memory, and when they are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>
#include <vector>

#include "engine/test_network.h"

namespace verbena::engine::testing {
namespace {

constexpr std::uint16_t kChannel = 3;

/// The peer's memory is at hand, as far as the test lets it.
class Door final : public DirectMemory {
 public:
  Bytes reach(const Target& target) override {
    targets.push_back(target);
    if (peer == nullptr || targets.size() > allowed) return {};
    EXPECT_FALSE(inside);
    const auto bytes = peer->keys.lookup_remote(target.key, target.address, target.length,
                                                target.access, {.pd = End::kPd});
    inside = bytes.has_value();
    return bytes.value_or(Bytes());
  }
  bool offers(std::uint16_t channel, std::uint32_t access, std::uint64_t length) override {
    EXPECT_EQ(channel, kChannel);
    return (offered & access) != 0 && length <= most;
  }
  bool fetch(const Target& target, std::span<const Bytes> to) override {
    fetched.push_back(to.size());
    EXPECT_FALSE(inside);
    const auto bytes = peer->keys.lookup_remote(target.key, target.address, target.length,
                                                target.access, {.pd = End::kPd});
    inside = fetches && bytes.has_value();
    if (!inside) return false;
    ConstBytes rest = *bytes;
    for (const Bytes place : to) {
      std::ranges::copy(rest.first(place.size()), place.begin());
      rest = rest.subspan(place.size());
    }
    EXPECT_TRUE(rest.empty());
    return true;
  }
  bool leave(std::uint16_t channel, Time) override {
    EXPECT_EQ(channel, kChannel);
    EXPECT_TRUE(std::exchange(inside, false));
    return there;
  }
  void admit(const Admission& admission) override { admissions.push_back(admission); }

  End* peer = nullptr;
  std::size_t allowed = ~std::size_t{0};
  std::vector<Target> targets;
  std::vector<Admission> admissions;
  std::uint32_t offered = kRemoteWrite | kRemoteRead;
  std::uint64_t most = ~std::uint64_t{0};
  bool fetches = true;
  std::vector<std::size_t> fetched;  ///< places of each
  bool inside = false;
  bool there = true;
};

EngineConfig with(Door& door) {
  EngineConfig config;
  config.direct = &door;
  return config;
}

/// Both ends have the same door; only `a` sends.
class Direct : public ::testing::Test {
 protected:
  Direct() {
    door_.peer = &b_;
    bring_up(a_, b_, 500);
    bring_up(b_, a_, 500);
    for (std::size_t i = 0; i < a_.memory.size(); ++i) a_.memory[i] = static_cast<std::byte>(i * 7);
  }

  void bring_up(End& end, const End& peer, std::uint32_t psn) {
    QpAttributes attributes;
    attributes.state = QpState::kInit;
    attributes.access = kRemoteWrite | kRemoteRead | kRemoteAtomic;
    attributes.port = 1;
    const auto go = [&](QpState from, QpState to) {
      attributes.state = to;
      ASSERT_TRUE(end.engine.modify(*end.qp, attributes,
                                    kMaskState | transition(QpType::kRc, from, to).required, now_));
    };
    go(QpState::kReset, QpState::kInit);
    attributes.path = {.source = end.source, .destination = peer.source, .channel = kChannel};
    attributes.path_mtu = 1024;
    attributes.destination_qp = peer.qpn;
    attributes.rq_psn = attributes.sq_psn = psn;
    attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4;
    attributes.timeout = 14;
    attributes.retry_count = attributes.rnr_retry = 3;
    go(QpState::kInit, QpState::kRtr);
    go(QpState::kRtr, QpState::kRts);
  }
  void write(std::uint64_t id, std::uint32_t length, SendOpcode opcode = SendOpcode::kWrite) {
    ASSERT_TRUE(a_.send({.id = id,
                         .opcode = opcode,
                         .signaled = true,
                         .remote_address = b_.address(0),
                         .rkey = b_.key},
                        {a_.piece(0, length)}, now_));
  }
  /// A turn's worth of WRITEs: two are done, and the third one is half way.
  void begin_three() {
    for (std::uint64_t id = 0; id < 3; ++id) write(id, 500'000);
    EXPECT_TRUE(turn(a_).empty());
    EXPECT_EQ(a_.sent.completions.size(), 2U);
  }
  /// What leaves `end` in one turn.
  std::vector<Datagram> turn(End& end) {
    std::vector<Datagram> out;
    std::array<wire::Train, 16> trains;
    const std::size_t count = end.engine.poll_transmit(now_, trains, Acks::kSend);
    for (const wire::Train& train : std::span(trains).first(count)) {
      for (std::uint32_t i = 0; i < train.count; ++i) {
        const wire::TrainPacket packet = wire::packet_at(train, i);
        out.push_back({.bytes = std::vector<std::byte>(packet.wire_size()), .path = *train.path});
        wire::write_packet(train, packet, 0, out.back().bytes);
      }
    }
    return out;
  }
  void deliver(End& end, const std::vector<Datagram>& datagrams) {
    for (const Datagram& datagram : datagrams) {
      const wire::Segment segment{.datagram = datagram.bytes, .path = datagram.path};
      end.engine.handle_batch(std::span(&segment, 1), now_);
    }
  }

  Door door_;
  End a_{0x7F000001, 0x111, QpType::kRc, with(door_)};
  End b_{0x7F000002, 0x222, QpType::kRc, with(door_)};
  Time now_{};
};

TEST_F(Direct, AWriteIsDoneAtOnceAndWithoutPackets) {
  write(7, 100'000);
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.take().id, 7U);
  EXPECT_TRUE(std::equal(a_.memory.begin(), a_.memory.begin() + 100'000, b_.memory.begin()));
  EXPECT_EQ(b_.memory[100'000], std::byte{0});
  EXPECT_EQ(a_.counters.direct_requests, 1U);
  EXPECT_EQ(a_.counters.bytes_sent, 100'000U);
  EXPECT_EQ(a_.counters.packets_sent, 0U);
  ASSERT_EQ(door_.targets.size(), 1U);
  EXPECT_EQ(door_.targets[0].qp_number, a_.qpn);
  EXPECT_EQ(door_.targets[0].destination_qp, b_.qpn);
  EXPECT_EQ(door_.targets[0].access, kRemoteWrite);
  EXPECT_FALSE(a_.engine.poll_timeout());
}

TEST_F(Direct, AReadFetchesIntoItsPieces) {
  std::ranges::fill(b_.memory, std::byte{9});
  ASSERT_TRUE(a_.send({.id = 8,
                       .opcode = SendOpcode::kRead,
                       .signaled = true,
                       .remote_address = b_.address(10),
                       .rkey = b_.key},
                      {a_.piece(0, 3), a_.piece(1000, 5)}, now_));
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.take().opcode, CompletionOpcode::kRead);
  EXPECT_EQ(std::ranges::count(a_.memory | std::views::take(1100), std::byte{9}), 8 + 4);
  EXPECT_EQ(a_.counters.bytes_received, 8U);
}

/// The peer's memory is not mapped here, but can be fetched.
class Fetched : public Direct {
 protected:
  Fetched() {
    door_.allowed = 0;
    std::ranges::fill(b_.memory, std::byte{9});
  }
  void read(const std::vector<Sge>& pieces) {
    ASSERT_TRUE(a_.send({.id = 8,
                         .opcode = SendOpcode::kRead,
                         .signaled = true,
                         .remote_address = b_.address(10),
                         .rkey = b_.key},
                        pieces, now_));
  }
};

TEST_F(Fetched, AReadComesIntoItsPieces) {
  std::ranges::fill(a_.memory, std::byte{});
  read({a_.piece(0, 3), a_.piece(1000, 6)});
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.take().status, Status::kSuccess);
  EXPECT_EQ(std::ranges::count(a_.memory, std::byte{9}), 9);
  EXPECT_EQ(a_.memory[1005], std::byte{9});
  EXPECT_EQ(door_.fetched, std::vector<std::size_t>{2});
  EXPECT_EQ(a_.counters.bytes_received, 9U);
  EXPECT_EQ(a_.counters.direct_requests, 1U);
}

TEST_F(Fetched, ALongReadComesInParts) {
  std::ranges::fill(a_.memory, std::byte{});
  door_.most = 1 << 20;
  read({a_.piece(0, 1'000'000), a_.piece(1'000'000, 200'000)});
  while (a_.sent.completions.empty()) ASSERT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.take().status, Status::kSuccess);
  EXPECT_EQ(std::ranges::count(a_.memory, std::byte{9}), 1'200'000);
  EXPECT_EQ(door_.fetched, (std::vector<std::size_t>{2, 1}));
}

TEST_F(Fetched, WhatIsNotToBeHadComesByPackets) {
  door_.fetches = false;
  std::ranges::fill(a_.memory, std::byte{});
  read({a_.piece(0, 3000)});
  deliver(b_, turn(a_));
  deliver(a_, turn(b_));
  EXPECT_EQ(a_.sent.take().status, Status::kSuccess);
  EXPECT_EQ(std::ranges::count(a_.memory, std::byte{9}), 3000);
  EXPECT_EQ(a_.counters.direct_requests, 0U);
  EXPECT_EQ(door_.fetched.size(), 1U);
}

TEST_F(Fetched, NothingIsWrittenWhereTheProgramMayNot) {
  auto foreign = a_.piece(0, 8);
  foreign.lkey += 256;
  read({a_.piece(1000, 8), foreign});
  EXPECT_TRUE(door_.fetched.empty());
  deliver(b_, turn(a_));
  deliver(a_, turn(b_));
  EXPECT_EQ(a_.sent.take().status, Status::kLocalProtectionError);
}

TEST_F(Fetched, OneValueIsNot) {
  read({a_.piece(0, 8)});
  EXPECT_EQ(turn(a_).size(), 1U) << "the kernel may bring half of it";
  EXPECT_TRUE(door_.fetched.empty());
}

TEST_F(Fetched, NorIsWhatIsTooLong) {
  door_.most = 100;
  read({a_.piece(0, 101)});
  EXPECT_EQ(turn(a_).size(), 1U);
  EXPECT_TRUE(door_.targets.empty());
}

TEST_F(Fetched, WhoIsGoneBehindTheCopyIsAskedByPackets) {
  door_.there = false;
  read({a_.piece(0, 3000)});
  EXPECT_EQ(turn(a_).size(), 1U);
  EXPECT_TRUE(a_.sent.completions.empty());
}

TEST_F(Fetched, PlacesAreThoseOfTheListOrNone) {
  const std::array<Sge, 3> pieces = {a_.piece(0, 10), a_.piece(100, 0), a_.piece(200, 20)};
  std::array<Bytes, 2> room;
  const auto places = [&](std::uint64_t offset, std::uint64_t size, std::size_t count) {
    return places_of(a_.keys, pieces, offset, size, End::kPd, std::span(room).first(count));
  };
  ASSERT_EQ(places(4, 11, 2).size(), 2U);
  EXPECT_EQ(room[0].data(), a_.memory.data() + 4);
  EXPECT_EQ(room[0].size(), 6U);
  EXPECT_EQ(room[1].data(), a_.memory.data() + 200);
  EXPECT_EQ(room[1].size(), 5U);
  EXPECT_EQ(places(12, 3, 1).size(), 1U);
  EXPECT_TRUE(places(4, 11, 1).empty()) << "no room for the second";
}

TEST_F(Fetched, WritesAreNot) {
  write(1, 3000);
  EXPECT_EQ(turn(a_).size(), 1U);
  EXPECT_TRUE(door_.fetched.empty());
}

TEST_F(Direct, WhereNothingIsOfferedNothingIsAskedFor) {
  door_.offered = kRemoteRead;
  write(1, 3000);
  EXPECT_EQ(turn(a_).size(), 1U);
  EXPECT_TRUE(door_.targets.empty());
}

TEST_F(Direct, InlineDataAndUnsignaledRequestsGoTheSameWay) {
  ASSERT_TRUE(a_.send({.id = 1,
                       .opcode = SendOpcode::kWrite,
                       .inline_data = true,
                       .remote_address = b_.address(64),
                       .rkey = b_.key},
                      {{.address = a_.address(32), .length = 16, .lkey = 0}}, now_));
  write(2, 8);
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.take().id, 2U);
  EXPECT_TRUE(a_.sent.completions.empty());
  EXPECT_EQ(b_.memory[64], a_.memory[32]);
  EXPECT_EQ(a_.sends.room(), a_.sends.capacity());
}

TEST_F(Direct, NothingOvertakesWhatIsUnderWay) {
  ASSERT_TRUE(b_.receive(21, {b_.piece(2000, 100)}, now_));
  ASSERT_TRUE(
      a_.send({.id = 1, .opcode = SendOpcode::kSend, .signaled = true}, {a_.piece(0, 50)}, now_));
  write(2, 64);
  const auto packets = turn(a_);
  EXPECT_EQ(packets.size(), 2U);  // the WRITE, too
  EXPECT_TRUE(door_.targets.empty());
  deliver(b_, packets);
  deliver(a_, turn(b_));
  EXPECT_EQ(a_.sent.completions.size(), 2U);
  write(3, 64);  // all is acknowledged
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.completions.size(), 3U);
}

TEST_F(Direct, WhatIsNotToBeHadGoesByPackets) {
  door_.allowed = 0;
  write(1, 3000);
  const auto packets = turn(a_);
  EXPECT_EQ(packets.size(), 1U);  // 32 KiB each by channel
  deliver(b_, packets);
  deliver(a_, turn(b_));
  EXPECT_EQ(a_.sent.take().status, Status::kSuccess);
  EXPECT_EQ(a_.counters.direct_requests, 0U);
}

TEST_F(Direct, WhereThePeerIsGoneItIsAskedByPackets) {
  door_.there = false;
  write(1, 3000);
  EXPECT_EQ(turn(a_).size(), 1U);
  EXPECT_TRUE(a_.sent.completions.empty());
}

/// Without being posted.
class AtOnce : public Direct {
 protected:
  /// A WRITE behind what was posted, as the NIC makes it.
  const SendWqe& made(std::uint32_t length, bool signaled = true,
                      SendOpcode opcode = SendOpcode::kWrite) {
    SendQueue::Posting posting(a_.sends);
    *posting.begin() = {.id = 5,
                        .opcode = opcode,
                        .signaled = signaled,
                        .remote_address = b_.address(0),
                        .rkey = b_.key};
    posting.make_pieces(1)[0] = a_.piece(0, length);
    EXPECT_TRUE(posting.end());
    return *posting.single();
  }
};

TEST_F(AtOnce, AWriteIsCopiedAndCompleted) {
  const SendWqe& wqe = made(100);
  ASSERT_TRUE(a_.engine.copy_at_once(*a_.qp, wqe));
  EXPECT_EQ(a_.memory[99], b_.memory[99]);
  EXPECT_TRUE(a_.sent.completions.empty());
  EXPECT_TRUE(a_.engine.end_at_once(*a_.qp, wqe, now_));
  EXPECT_EQ(a_.sent.take().id, 5U);
  EXPECT_EQ(a_.counters.direct_requests, 1U);
  EXPECT_EQ(a_.sends.room(), a_.sends.capacity());
  EXPECT_FALSE(a_.engine.poll_timeout());
}

TEST_F(AtOnce, AReadIsFetchedAndCompleted) {
  door_.allowed = 0;
  std::ranges::fill(b_.memory, std::byte{9});
  const SendWqe& wqe = made(100, true, SendOpcode::kRead);
  ASSERT_TRUE(a_.engine.copy_at_once(*a_.qp, wqe));
  EXPECT_TRUE(a_.engine.end_at_once(*a_.qp, wqe, now_));
  EXPECT_EQ(a_.sent.take().opcode, CompletionOpcode::kRead);
  EXPECT_EQ(a_.memory[99], std::byte{9});
  door_.fetches = false;
  EXPECT_FALSE(a_.engine.copy_at_once(*a_.qp, made(100, true, SendOpcode::kRead)));
  EXPECT_TRUE(a_.sent.completions.empty());
}

TEST_F(AtOnce, UnsignaledOnesGiveTheirPlacesBackWithTheNext) {
  ASSERT_TRUE(a_.send(
      {.id = 1, .opcode = SendOpcode::kWrite, .remote_address = b_.address(0), .rkey = b_.key},
      {a_.piece(0, 8)}, now_));
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sends.room(), a_.sends.capacity() - 1);
  const SendWqe& silent = made(8, false);
  ASSERT_TRUE(a_.engine.copy_at_once(*a_.qp, silent));
  ASSERT_TRUE(a_.engine.end_at_once(*a_.qp, silent, now_));
  EXPECT_TRUE(a_.sent.completions.empty());
  const SendWqe& loud = made(8);
  ASSERT_TRUE(a_.engine.copy_at_once(*a_.qp, loud));
  ASSERT_TRUE(a_.engine.end_at_once(*a_.qp, loud, now_));
  EXPECT_EQ(a_.sent.completions.size(), 1U);
  EXPECT_EQ(a_.sends.room(), a_.sends.capacity());
}

TEST_F(AtOnce, NothingIsDoneWhereAnythingElseWaits) {
  EXPECT_FALSE(a_.engine.copy_at_once(*a_.qp, made(0)));
  EXPECT_FALSE(a_.engine.copy_at_once(*a_.qp, made(300'000)));
  ASSERT_TRUE(b_.receive(21, {b_.piece(2000, 100)}, now_));
  ASSERT_TRUE(
      a_.send({.id = 1, .opcode = SendOpcode::kSend, .signaled = true}, {a_.piece(0, 50)}, now_));
  EXPECT_FALSE(a_.engine.copy_at_once(*a_.qp, made(8)));  // posted, and not sent
  const auto packets = turn(a_);
  EXPECT_FALSE(a_.engine.copy_at_once(*a_.qp, made(8)));  // sent, and not acknowledged
  deliver(b_, packets);
  deliver(a_, turn(b_));
  EXPECT_TRUE(a_.engine.copy_at_once(*a_.qp, made(8)));
  door_.there = false;
  EXPECT_FALSE(a_.engine.end_at_once(*a_.qp, made(8), now_));
  EXPECT_EQ(a_.sent.completions.size(), 1U);
}

TEST_F(AtOnce, AnOverrunEndsTheQueuePair) {
  a_.sent.limit = 0;
  const SendWqe& wqe = made(8);
  ASSERT_TRUE(a_.engine.copy_at_once(*a_.qp, wqe));
  EXPECT_TRUE(a_.engine.end_at_once(*a_.qp, wqe, now_));
  EXPECT_EQ(a_.engine.state(*a_.qp), QpState::kErr);
}

TEST_F(Direct, AWrongKeyIsRefusedByThePeer) {
  ASSERT_TRUE(a_.send({.id = 1,
                       .opcode = SendOpcode::kWrite,
                       .signaled = true,
                       .remote_address = b_.address(0),
                       .rkey = b_.key + 256},
                      {a_.piece(0, 10)}, now_));
  deliver(b_, turn(a_));
  deliver(a_, turn(b_));
  EXPECT_EQ(a_.sent.take().status, Status::kRemoteAccessError);
}

TEST_F(Direct, AWrongPieceIsALocalError) {
  ASSERT_TRUE(a_.send({.id = 1,
                       .opcode = SendOpcode::kWrite,
                       .signaled = true,
                       .remote_address = b_.address(0),
                       .rkey = b_.key},
                      {{.address = a_.address(0), .length = 10, .lkey = a_.key + 256}}, now_));
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.take().status, Status::kLocalProtectionError);
  EXPECT_FALSE(door_.inside);
}

TEST_F(Direct, AtomicsZeroLengthsAndImmediatesGoByPackets) {
  ASSERT_TRUE(b_.receive(21, {}, now_));
  write(1, 0);
  write(2, 8, SendOpcode::kWriteWithImm);
  write(3, 8, SendOpcode::kFetchAdd);
  EXPECT_EQ(turn(a_).size(), 3U);
  EXPECT_TRUE(door_.targets.empty());
}

TEST_F(Direct, ManyTakeSeveralTurns) {
  int turns = 0;
  for (std::uint64_t id = 0; id < 64; ++id) write(id, 130'000);
  do {
    EXPECT_TRUE(turn(a_).empty());
    ++turns;
  } while (a_.engine.unfinished() && turns < 100);
  EXPECT_EQ(turns, 8);  // a mebibyte each
  EXPECT_EQ(a_.sent.completions.size(), 64U);
}

TEST_F(Direct, WhatWasBegunEndsWithItsQueuePair) {
  for (std::uint64_t id = 0; id < 10; ++id) write(id, 120'000);
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_TRUE(a_.engine.unfinished());
  QpAttributes error;
  error.state = QpState::kErr;
  ASSERT_TRUE(a_.engine.modify(*a_.qp, error, kMaskState, now_));
  EXPECT_TRUE(turn(a_).empty());
  ASSERT_EQ(a_.sent.completions.size(), 10U);
  EXPECT_EQ(a_.sent.completions.front().status, Status::kSuccess);
  EXPECT_EQ(a_.sent.completions.back().status, Status::kFlushError);
  EXPECT_FALSE(a_.engine.unfinished());
}

TEST_F(Direct, WhatWasBegunAndGoesByPacketsBeginsAnew) {
  begin_three();
  QpAttributes slow;
  slow.rate_limit = 1'000'000'000;
  ASSERT_TRUE(a_.engine.modify(*a_.qp, slow, kMaskRateLimit, now_));
  for (int i = 0; i < 100 && a_.sent.completions.size() < 3; ++i) {
    deliver(b_, turn(a_));
    deliver(a_, turn(b_));
    now_ += std::chrono::milliseconds(1);
  }
  ASSERT_EQ(a_.sent.completions.size(), 3U);
  EXPECT_EQ(a_.counters.direct_requests, 2U);
  slow.rate_limit = 0;
  ASSERT_TRUE(a_.engine.modify(*a_.qp, slow, kMaskRateLimit, now_));
  std::ranges::fill(a_.memory, std::byte{0x5A});
  write(9, 64);
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(b_.memory[0], std::byte{0x5A});
  EXPECT_EQ(b_.memory[63], std::byte{0x5A});
}

TEST_F(Direct, ADrainedQueuePairTellsOfItsLast) {
  begin_three();
  QpAttributes drained;
  drained.state = QpState::kSqd;
  drained.sqd_notify = true;
  ASSERT_TRUE(a_.engine.modify(*a_.qp, drained, kMaskState | kMaskSqdNotify, now_));
  EXPECT_FALSE(a_.engine.poll_event());
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.completions.size(), 3U);
  const auto event = a_.engine.poll_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::kSendQueueDrained);
}

TEST_F(Direct, AnotherPathKeepsTheChannel) {
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  ASSERT_TRUE(a_.engine.modify(*a_.qp, attributes, kMaskState, now_));
  attributes.path = {.source = a_.source, .destination = b_.source, .traffic_class = 8};
  ASSERT_TRUE(a_.engine.modify(*a_.qp, attributes, kMaskPath, now_));
  attributes.state = QpState::kRts;
  ASSERT_TRUE(a_.engine.modify(*a_.qp, attributes, kMaskState, now_));
  write(1, 64);
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.counters.direct_requests, 1U);
}

TEST_F(Direct, WhoAllowsNoReadsLetsNobodyReadDirectly) {
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  ASSERT_TRUE(b_.engine.modify(*b_.qp, attributes, kMaskState, now_));
  attributes.max_dest_rd_atomic = 0;
  ASSERT_TRUE(b_.engine.modify(*b_.qp, attributes, kMaskMaxDestRdAtomic, now_));
  EXPECT_EQ(door_.admissions.back().access, std::uint32_t{kRemoteWrite});
}

TEST_F(Direct, ThePeerIsAdmittedWhileTheStateAllows) {
  const auto last = [this] { return door_.admissions.back(); };
  EXPECT_EQ(last().qp_number, b_.qpn);
  EXPECT_EQ(last().destination_qp, a_.qpn);
  EXPECT_EQ(last().channel, kChannel);
  EXPECT_EQ(last().pd, End::kPd);
  EXPECT_EQ(last().access, kRemoteWrite | kRemoteRead);
  QpAttributes attributes;
  attributes.access = kRemoteRead;
  ASSERT_TRUE(b_.engine.modify(*b_.qp, attributes, kMaskAccess, now_));
  EXPECT_EQ(last().access, kRemoteRead);
  attributes.state = QpState::kErr;
  ASSERT_TRUE(b_.engine.modify(*b_.qp, attributes, kMaskState, now_));
  EXPECT_EQ(last().qp_number, b_.qpn);
  EXPECT_EQ(last().access, 0U);
  const std::size_t told = door_.admissions.size();
  a_.engine.destroy(*a_.qp, now_);
  ASSERT_EQ(door_.admissions.size(), told + 1);
  EXPECT_EQ(last().qp_number, a_.qpn);
  EXPECT_EQ(last().access, 0U);
}

}  // namespace
}  // namespace verbena::engine::testing
