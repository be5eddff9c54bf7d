// SPDX-License-Identifier: Apache-2.0
#include "nic/nic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "nic/test_end.h"
#include "nic/test_host.h"

namespace verbena::nic {
namespace {

using engine::Completion;
using engine::CompletionOpcode;
using engine::QpState;
using engine::SendOpcode;
using engine::Status;
using testing::connect;
using testing::End;
using testing::EndOptions;
using namespace std::chrono_literals;

class NicTest : public ::testing::Test {
 protected:
  /// Polls one end until something completes; the other end is driven by its host.
  std::vector<Completion> await(const End& end, CompletionQueue* cq) {
    for (int i = 0; i < 1000; ++i) {
      auto completions = end.poll(cq);
      if (!completions.empty()) return completions;
      host.step();
    }
    ADD_FAILURE() << "no completion";
    return {};
  }
  Completion await_one(const End& end, CompletionQueue* cq) {
    const auto completions = await(end, cq);
    EXPECT_EQ(completions.size(), 1U);
    return completions.empty() ? Completion{} : completions.front();
  }
  static void fill(std::vector<std::byte>& memory, std::size_t offset, std::size_t length,
                   unsigned seed) {
    for (std::size_t i = 0; i < length; ++i) {
      memory[offset + i] = static_cast<std::byte>(i * 7 + (i >> 8) + seed);
    }
  }
  static bool same(const End& a, std::size_t at, const End& b, std::size_t there,
                   std::size_t length) {
    return std::memcmp(a.memory.data() + at, b.memory.data() + there, length) == 0;
  }

  testing::Network network;
  testing::StepHost host{network};
};

class PairTest : public NicTest {
 protected:
  PairTest() { connect(a, b); }
  End a{host, "127.0.0.1"};
  End b{host, "127.0.0.2"};
};

TEST_F(PairTest, SendArrivesAndBothSidesComplete) {
  fill(a.memory, 0, 5000, 1);
  ASSERT_TRUE(b.receive(21, {b.piece(100, 6000)}));
  ASSERT_TRUE(a.send({.id = 11, .opcode = SendOpcode::kSendWithImm, .immediate = 0xABCD},
                     {a.piece(0, 3000), a.piece(3000, 2000)}));
  const Completion received = await_one(b, b.receive_cq);
  EXPECT_EQ(received.id, 21U);
  EXPECT_EQ(received.status, Status::kSuccess);
  EXPECT_EQ(received.byte_count, 5000U);
  EXPECT_TRUE(received.with_immediate);
  EXPECT_EQ(received.immediate_or_key, 0xABCDU);
  EXPECT_TRUE(same(a, 0, b, 100, 5000));
  const Completion sent = await_one(a, a.send_cq);
  EXPECT_EQ(sent.id, 11U);
  EXPECT_EQ(sent.status, Status::kSuccess);
  EXPECT_EQ(sent.qp_number, a.nic->number(a.qp));
}

TEST_F(PairTest, WriteReadAndAtomics) {
  fill(a.memory, 0, 9000, 5);
  ASSERT_TRUE(a.send({.id = 1,
                      .opcode = SendOpcode::kWrite,
                      .remote_address = b.base() + 64,
                      .rkey = b.region->key},
                     {a.piece(0, 9000)}));
  EXPECT_EQ(await_one(a, a.send_cq).status, Status::kSuccess);
  EXPECT_TRUE(same(a, 0, b, 64, 9000));
  ASSERT_TRUE(a.send({.id = 2,
                      .opcode = SendOpcode::kRead,
                      .remote_address = b.base() + 64,
                      .rkey = b.region->key},
                     {a.piece(20000, 9000)}));
  EXPECT_EQ(await_one(a, a.send_cq).opcode, CompletionOpcode::kRead);
  EXPECT_TRUE(same(a, 0, a, 20000, 9000));

  const std::uint64_t forty = 40;
  std::memcpy(b.memory.data(), &forty, 8);
  ASSERT_TRUE(a.send({.id = 3,
                      .opcode = SendOpcode::kFetchAdd,
                      .remote_address = b.base(),
                      .rkey = b.region->key,
                      .compare_or_add = 2},
                     {a.piece(40000, 8)}));
  ASSERT_TRUE(a.send({.id = 4,
                      .opcode = SendOpcode::kCompareSwap,
                      .remote_address = b.base(),
                      .rkey = b.region->key,
                      .compare_or_add = 42,
                      .swap = 7},
                     {a.piece(40008, 8)}));
  std::size_t done = 0;
  while (done < 2) done += await(a, a.send_cq).size();
  std::uint64_t before_add = 0;
  std::uint64_t before_swap = 0;
  std::uint64_t now_there = 0;
  std::memcpy(&before_add, a.memory.data() + 40000, 8);
  std::memcpy(&before_swap, a.memory.data() + 40008, 8);
  std::memcpy(&now_there, b.memory.data(), 8);
  EXPECT_EQ(before_add, 40U);
  EXPECT_EQ(before_swap, 42U);
  EXPECT_EQ(now_there, 7U);
}

TEST_F(PairTest, LossIsRecoveredByTheClockAlone) {
  End c(host, "127.0.0.3");
  End d(host, "127.0.0.4");
  connect(c, d);
  int number = 0;
  network.lose = [&](const testing::Network::Datagram&) { return ++number % 3 == 0; };
  fill(c.memory, 0, 30000, 9);
  ASSERT_TRUE(c.send(
      {.id = 1, .opcode = SendOpcode::kWrite, .remote_address = d.base(), .rkey = d.region->key},
      {c.piece(0, 30000)}));
  host.settle();
  EXPECT_EQ(await_one(c, c.send_cq).status, Status::kSuccess);
  EXPECT_TRUE(same(c, 0, d, 0, 30000));
  EXPECT_GT(c.nic->counters().retransmitted, 0U);
  network.lose = nullptr;
}

TEST_F(PairTest, FullWayOutIsLossToTheTransport) {
  fill(a.memory, 0, 20000, 3);
  host.links.front()->room = 0;
  ASSERT_TRUE(a.send(
      {.id = 1, .opcode = SendOpcode::kWrite, .remote_address = b.base(), .rkey = b.region->key},
      {a.piece(0, 20000)}));
  host.links.front()->room = 1;
  EXPECT_EQ(await_one(a, a.send_cq).status, Status::kSuccess);
  EXPECT_TRUE(same(a, 0, b, 0, 20000));
}

TEST_F(PairTest, DeregisteredMemoryIsRefused) {
  const std::uint32_t key = b.region->key;
  ASSERT_TRUE(b.nic->deregister_memory(b.region));
  b.region = nullptr;
  ASSERT_TRUE(
      a.send({.id = 1, .opcode = SendOpcode::kWrite, .remote_address = b.base(), .rkey = key},
             {a.piece(0, 8)}));
  EXPECT_EQ(await_one(a, a.send_cq).status, Status::kRemoteAccessError);
  EXPECT_EQ(a.nic->query_qp(a.qp).state, QpState::kErr);
  // The key's place is used again, but never soon under the same number.
  const auto again = b.nic->register_memory(b.pd, b.memory.data(), 64, b.base(), 0);
  ASSERT_TRUE(again);
  EXPECT_NE((*again)->key, key);
  EXPECT_TRUE(b.nic->deregister_memory(*again));
}

TEST_F(PairTest, AccessErrorRaisesAnEventOfTheResponder) {
  ASSERT_TRUE(
      a.send({.id = 1, .opcode = SendOpcode::kWrite, .remote_address = b.base(), .rkey = 0xDEAD},
             {a.piece(0, 8)}));
  EXPECT_EQ(await_one(a, a.send_cq).status, Status::kRemoteAccessError);
  const auto event = b.nic->next_async_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, AsyncKind::kQpAccessError);
  EXPECT_EQ(event->cookie, &b.qp_cookie);
  // Destroying the queue pair waits for the acknowledgement.
  EXPECT_EQ(b.nic->destroy_qp(b.qp).error().condition, std::errc::resource_deadlock_would_occur);
  host.meanwhile = [this] {
    host.meanwhile = nullptr;
    b.nic->acknowledge(b.qp, 1);
  };
  EXPECT_TRUE(b.nic->destroy_qp(b.qp));
  b.qp = nullptr;
}

TEST_F(PairTest, OverrunTakesItsQueuePairsToErrorAndSaysSo) {
  EndOptions small;
  small.cq_capacity = 2;
  End c(host, "127.0.0.3", small);
  End d(host, "127.0.0.4");
  connect(c, d);
  for (std::uint64_t id = 0; id < 4; ++id) {
    ASSERT_TRUE(c.send(
        {.id = id, .opcode = SendOpcode::kWrite, .remote_address = d.base(), .rkey = d.region->key},
        {c.piece(0, 8)}));
  }
  host.settle();
  const auto event = c.nic->next_async_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, AsyncKind::kCqError);
  EXPECT_EQ(event->cookie, &c.send_cookie);
  c.nic->acknowledge(c.send_cq, 1);
  EXPECT_EQ(c.nic->query_qp(c.qp).state, QpState::kErr);
  EXPECT_EQ(c.poll(c.send_cq).size(), 2U);
  std::array<Completion, 1> one{};
  EXPECT_EQ(c.nic->poll(c.send_cq, one).error().condition, std::errc::io_error);
}

TEST_F(PairTest, OverrunReachesQueuePairsThatDidNotOverflow) {
  EndOptions small;
  small.cq_capacity = 2;
  End c(host, "127.0.0.3", small);
  End d(host, "127.0.0.4");
  QpInit second = c.init;
  QueuePair* const other = c.nic->create_qp(second, nullptr).value();
  engine::QpAttributes attributes;
  attributes.state = QpState::kInit;
  attributes.port = 1;
  ASSERT_TRUE(c.nic->modify_qp(
      other, attributes,
      engine::kMaskState | engine::kMaskPkeyIndex | engine::kMaskPort | engine::kMaskAccess));
  connect(c, d);
  for (std::uint64_t id = 0; id < 3; ++id) {
    ASSERT_TRUE(c.send(
        {.id = id, .opcode = SendOpcode::kWrite, .remote_address = d.base(), .rkey = d.region->key},
        {c.piece(0, 8)}));
  }
  host.settle();
  EXPECT_EQ(c.nic->query_qp(other).state, QpState::kErr);
  EXPECT_TRUE(c.nic->destroy_qp(other));
}

TEST_F(PairTest, ResetForgetsPostsAndCompletions) {
  ASSERT_TRUE(b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(b.receive(2, {b.piece(64, 64)}));
  ASSERT_TRUE(a.send({.id = 1}, {a.piece(0, 10)}));
  host.settle();
  ASSERT_TRUE(a.to_state(QpState::kReset));
  ASSERT_TRUE(b.to_state(QpState::kReset));
  EXPECT_TRUE(a.poll(a.send_cq).empty());
  EXPECT_TRUE(b.poll(b.receive_cq).empty());
  EXPECT_EQ(b.receive(3, {b.piece(0, 64)}).error().condition, std::errc::invalid_argument);
  EXPECT_EQ(a.send({.id = 2}, {a.piece(0, 10)}).error().condition, std::errc::invalid_argument);
  connect(a, b);
  ASSERT_TRUE(b.receive(4, {b.piece(128, 64)}));
  fill(a.memory, 0, 10, 77);
  ASSERT_TRUE(a.send({.id = 5}, {a.piece(0, 10)}));
  EXPECT_EQ(await_one(b, b.receive_cq).id, 4U);
  EXPECT_TRUE(same(a, 0, b, 128, 10));
  EXPECT_EQ(await_one(a, a.send_cq).id, 5U);
}

TEST_F(PairTest, ErrorFlushesAndPostingGoesOn) {
  ASSERT_TRUE(b.receive(1, {b.piece(0, 64)}));
  ASSERT_TRUE(b.to_state(QpState::kErr));
  EXPECT_EQ(await_one(b, b.receive_cq).status, Status::kFlushError);
  ASSERT_TRUE(b.receive(2, {b.piece(0, 64)}));
  ASSERT_TRUE(b.send({.id = 3}, {b.piece(0, 8)}));
  EXPECT_EQ(await_one(b, b.receive_cq).id, 2U);
  EXPECT_EQ(await_one(b, b.send_cq).status, Status::kFlushError);
}

TEST_F(NicTest, PostingIsAllowedWhenTheEngineWentToErrorByItself) {
  End a(host, "127.0.0.1");
  End b(host, "127.0.0.2");
  ASSERT_TRUE(a.to_init());
  ASSERT_TRUE(b.to_init());
  ASSERT_TRUE(a.to_rtr(b));
  ASSERT_TRUE(b.to_rtr(a));
  ASSERT_TRUE(a.to_rts());
  EXPECT_FALSE(b.send({.id = 1}, {b.piece(0, 8)}));  // RTR
  ASSERT_TRUE(a.send({.id = 1, .opcode = SendOpcode::kWrite, .rkey = 0xBAD}, {a.piece(0, 8)}));
  EXPECT_EQ(await_one(a, a.send_cq).status, Status::kRemoteAccessError);
  EXPECT_EQ(b.nic->query_qp(b.qp).state, QpState::kErr);
  ASSERT_TRUE(b.send({.id = 2}, {b.piece(0, 8)}));
  EXPECT_EQ(await_one(b, b.send_cq).status, Status::kFlushError);
}

TEST_F(PairTest, TakingOneByOneStillDrivesTheLink) {
  constexpr std::uint64_t kCount = 200;
  for (std::uint64_t id = 0; id < kCount; ++id) ASSERT_TRUE(b.receive(id, {b.piece(0, 64)}));
  for (std::uint64_t id = 0; id < kCount; ++id) ASSERT_TRUE(a.send({.id = id}, {a.piece(0, 8)}));
  const auto receives = host.links[1]->receives;
  std::array<Completion, 1> one{};
  for (std::uint64_t id = 0; id < kCount; ++id) {
    ASSERT_EQ(b.nic->poll(b.receive_cq, one).value(), 1U);
    EXPECT_EQ(one[0].id, id);
  }
  const auto driven = host.links[1]->receives - receives;
  EXPECT_GE(driven, 3U);
  EXPECT_LE(driven, 10U);
}

TEST_F(NicTest, DatagramsCarryTheirSender) {
  EndOptions datagrams;
  datagrams.type = engine::QpType::kUd;
  End a(host, "127.0.0.1", datagrams);
  End b(host, "127.0.0.2", datagrams);
  a.bring_up_datagrams();
  b.bring_up_datagrams();
  AddressHandle* const ah =
      a.nic->create_ah(a.pd, {.destination = testing::address("127.0.0.2")}).value();
  EXPECT_EQ(ah->path.source, testing::address("127.0.0.1"));
  fill(a.memory, 0, 1000, 4);
  ASSERT_TRUE(b.receive(5, {b.piece(0, 2000)}));
  ASSERT_TRUE(a.send(
      {.id = 1, .target = {.path = ah->path, .qp_number = b.nic->number(b.qp), .qkey = End::kQkey}},
      {a.piece(0, 1000)}));
  const Completion received = await_one(b, b.receive_cq);
  EXPECT_EQ(received.byte_count, 1040U);
  EXPECT_EQ(received.source_qp, a.nic->number(a.qp));
  EXPECT_TRUE(same(a, 0, b, 40, 1000));
  EXPECT_EQ(await_one(a, a.send_cq).status, Status::kSuccess);
  EXPECT_EQ(a.nic->dealloc_pd(a.pd).error().condition, std::errc::device_or_resource_busy);
  EXPECT_TRUE(a.nic->destroy_ah(ah));
}

TEST_F(NicTest, DatagramsThatFindNoReceiveAreUnwanted) {
  EndOptions datagrams;
  datagrams.type = engine::QpType::kUd;
  End a(host, "127.0.0.1", datagrams);
  End b(host, "127.0.0.2", datagrams);
  a.bring_up_datagrams();
  b.bring_up_datagrams();
  const wire::Path path{.source = testing::address("127.0.0.1"),
                        .destination = testing::address("127.0.0.2")};
  const auto unwanted_of_two = [&] {
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(
          a.send({.target = {.path = path, .qp_number = b.nic->number(b.qp), .qkey = End::kQkey}},
                 {a.piece(0, 8)}));
    }
    const Progress done = b.nic->progress(host.clock, 64);
    EXPECT_EQ(done.datagrams, 2U);
    return done.unwanted;
  };
  EXPECT_EQ(unwanted_of_two(), 2U);
  ASSERT_TRUE(b.receive(1, {b.piece(0, 100)}));
  EXPECT_EQ(unwanted_of_two(), 1U);
}

}  // namespace
}  // namespace verbena::nic
