// SPDX-License-Identifier: Apache-2.0
//
// WRITEs and READs that are one copy between two processes' memory, and when they are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <ranges>
#include <vector>

#include "engine/test_direct.h"

namespace verbena::engine::testing {
namespace {

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
  EXPECT_EQ(a_.engine.poll_timeout(), kNever);
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

/// Else they would go by packets as long as the program has READs under way.
TEST_F(Direct, READsThatAreToBeFetchedWaitForThoseThatAreNot) {
  door_.offered = 0;
  write(1, 100, SendOpcode::kRead);
  const auto packets = turn(a_);
  EXPECT_EQ(packets.size(), 1U);
  door_.offered = kRemoteRead;
  door_.allowed = 0;
  door_.turn = 1;
  write(2, 100, SendOpcode::kRead);
  write(3, 100, SendOpcode::kRead);
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_TRUE(door_.fetched.empty());
  deliver(b_, packets);
  deliver(a_, turn(b_));
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(door_.fetched.size(), 2U);
  for (const std::uint64_t id : {1, 2, 3}) EXPECT_EQ(a_.sent.take().id, id);
}

TEST_F(Direct, READsDoNotWaitForOthers) {
  door_.allowed = 0;
  door_.turn = 1;
  ASSERT_TRUE(b_.receive(21, {b_.piece(2000, 100)}, now_));
  ASSERT_TRUE(
      a_.send({.id = 1, .opcode = SendOpcode::kSend, .signaled = true}, {a_.piece(0, 50)}, now_));
  write(2, 100, SendOpcode::kRead);
  EXPECT_EQ(turn(a_).size(), 2U);
  EXPECT_TRUE(door_.fetched.empty());
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
  EXPECT_EQ(a_.engine.poll_timeout(), kNever);
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
  EXPECT_TRUE(a_.engine.attributes(*a_.qp).sq_draining);
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.completions.size(), 3U);
  EXPECT_FALSE(a_.engine.attributes(*a_.qp).sq_draining);
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
