// SPDX-License-Identifier: Apache-2.0
#include "nic/same_host.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "nic/live_host.h"
#include "nic/test_alone.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using engine::Completion;
using engine::SendOpcode;
using engine::Status;
using testing::address;
using testing::End;

Completion await(const End& end, CompletionQueue* cq) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < until) {
    const auto completions = end.poll(cq);
    if (!completions.empty()) return completions.front();
  }
  ADD_FAILURE() << "no completion";
  return {};
}

/// Waits without polling, so that whoever sends has to wake the NIC's runner.
Completion await_asleep(const End& end, CompletionQueue* cq) {
  std::vector<Completion> completions;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (completions.empty() && std::chrono::steady_clock::now() < until) {
    EXPECT_TRUE(end.nic->arm(cq, false));
    completions = end.poll(cq);
    if (!completions.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    completions = end.poll(cq);
  }
  EXPECT_FALSE(completions.empty());
  return completions.empty() ? Completion{} : completions.front();
}

std::uint16_t channel_of(const End& end) { return end.nic->query_qp(end.qp).path.channel; }

class SameHostTest : public ::testing::Test {
 protected:
  std::unique_ptr<LiveHost> host_ = LiveHost::create({.same_host = true}).value();
};

TEST_F(SameHostTest, QueuePairsOfOneMachineMeet) {
  End a(*host_, "127.77.30.1");
  End b(*host_, "127.77.30.2");
  testing::connect(a, b);
  EXPECT_NE(channel_of(a), 0);
  EXPECT_NE(channel_of(b), 0);
  for (int i = 0; i < 200; ++i) {
    const auto length = static_cast<std::uint32_t>(i * 300);
    std::ranges::fill(a.memory, static_cast<std::byte>(i + 1));
    ASSERT_TRUE(b.receive(21, {b.piece(0, length)}));
    ASSERT_TRUE(a.send({.id = 11, .opcode = SendOpcode::kSend}, {a.piece(0, length)}));
    EXPECT_EQ(await(b, b.receive_cq).byte_count, length);
    EXPECT_EQ(await(a, a.send_cq).status, Status::kSuccess);
    EXPECT_EQ(std::ranges::count(b.memory, static_cast<std::byte>(i + 1)), length);
  }
  // Both read what the other one has.
  for (const auto& [reader, owner] : {std::pair{&a, &b}, {&b, &a}}) {
    std::ranges::fill(owner->memory, std::byte{0x77});
    ASSERT_TRUE(reader->send({.id = 12,
                              .opcode = SendOpcode::kRead,
                              .remote_address = owner->base(),
                              .rkey = owner->region->key},
                             {reader->piece(0, 60'000)}));
    EXPECT_EQ(await(*reader, reader->send_cq).status, Status::kSuccess);
    EXPECT_EQ(std::ranges::count(reader->memory, std::byte{0x77}), reader == &b ? 65'536 : 60'000);
  }
}

TEST_F(SameHostTest, AQueuePairMeetsAnotherOneOfItsSlot) {
  End a(*host_, "127.77.30.3");
  ASSERT_TRUE(a.to_init());
  ASSERT_TRUE(a.to_rtr(a));
  ASSERT_TRUE(a.to_rts());
  EXPECT_NE(channel_of(a), 0);
  ASSERT_TRUE(a.receive(21, {a.piece(0, 100)}));
  ASSERT_TRUE(a.send({.id = 11, .opcode = SendOpcode::kSend}, {a.piece(200, 100)}));
  EXPECT_EQ(await(a, a.receive_cq).byte_count, 100U);
  EXPECT_EQ(await(a, a.send_cq).status, Status::kSuccess);
}

TEST_F(SameHostTest, WhoSleepsIsWoken) {
  End a(*host_, "127.77.30.4");
  End b(*host_, "127.77.30.5");
  testing::connect(a, b);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(b.receive(21, {b.piece(0, 64)}));
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    ASSERT_TRUE(a.send({.id = 11, .opcode = SendOpcode::kSend}, {a.piece(0, 64)}));
    EXPECT_EQ(await_asleep(b, b.receive_cq).byte_count, 64U);
    EXPECT_EQ(await_asleep(a, a.send_cq).status, Status::kSuccess);
  }
}

TEST_F(SameHostTest, WhoDoesNotTakePartIsReachedByTheNetwork) {
  End a(*host_, "127.77.30.6");
  const wire::Path nobody{.source = address("127.77.30.6"), .destination = address("127.77.30.7")};
  ForkLedger ledger;
  SameHost alone(ledger);
  EXPECT_EQ(alone.meet(nobody, 1, 1U << 18), 0);
  // Somebody is there, but the slot has no link that takes channels.
  const wire::Path itself{.source = nobody.source, .destination = nobody.source};
  EXPECT_EQ(alone.meet(itself, 1, a.nic->number(a.qp)), 0);
}

/// What READs is `a`; nothing is shared.
class FetchedReadTest : public ::testing::Test {
 protected:
  FetchedReadTest() {
    testing::connect(a_, b_);
    std::ranges::fill(b_.memory, std::byte{6});
  }
  Status read(std::uint32_t key, std::uint32_t length) {
    std::ranges::fill(a_.memory, std::byte{});
    EXPECT_TRUE(
        a_.send({.id = 2, .opcode = SendOpcode::kRead, .remote_address = b_.base(), .rkey = key},
                {a_.piece(0, length)}));
    return await(a_, a_.send_cq).status;
  }
  void is_fetched(std::uint32_t key, std::uint32_t length) {
    EXPECT_EQ(read(key, length), Status::kSuccess);
    EXPECT_EQ(std::ranges::count(a_.memory, std::byte{6}), length);
    EXPECT_EQ(a_.nic->counters().direct_requests, ++fetched_);
  }

  std::unique_ptr<LiveHost> host_ =
      LiveHost::create({.same_host = true, .fetching = Fetching::kAlways}).value();
  End a_{*host_, "127.77.30.8"};
  End b_{*host_, "127.77.30.9"};
  std::uint64_t fetched_ = 0;
};

TEST_F(FetchedReadTest, TakesWhatItsPeerHasToItself) {
  is_fetched(b_.region->key, 30'000);
  EXPECT_EQ(a_.nic->counters().packets_sent, 0U);
  ASSERT_TRUE(a_.send(
      {.id = 3, .opcode = SendOpcode::kWrite, .remote_address = b_.base(), .rkey = b_.region->key},
      {a_.piece(0, 100)}));
  EXPECT_EQ(await(a_, a_.send_cq).status, Status::kSuccess);
  EXPECT_EQ(a_.nic->counters().direct_requests, fetched_) << "WRITEs are packets";
}

TEST_F(FetchedReadTest, IsRefusedByThePeerWhatIsClosed) {
  ASSERT_TRUE(b_.nic->change_memory(b_.region, b_.pd, engine::kLocalWrite));
  EXPECT_EQ(read(b_.region->key, 30'000), Status::kRemoteAccessError);
  EXPECT_EQ(a_.nic->counters().direct_requests, 0U);
}

TEST_F(FetchedReadTest, TakesWhatIsOnDemandOrOpenedAgain) {
  constexpr std::uint32_t kOpen = engine::kLocalWrite | engine::kRemoteRead;
  ASSERT_TRUE(b_.nic->change_memory(b_.region, b_.pd, engine::kLocalWrite));
  ASSERT_TRUE(b_.nic->change_memory(b_.region, b_.pd, kOpen));
  is_fetched(b_.region->key, 1000);
  const auto all = b_.nic->register_all_memory(b_.pd, kOpen);
  ASSERT_TRUE(all);
  is_fetched((*all)->key, 1000);
  ASSERT_TRUE(b_.nic->deregister_memory(*all));
}

// A program that sleeps until its event comes has nobody else who would look when that is due.
TEST(FetchedRead, ItsModeratedEventIsDue) {
  const auto host = LiveHost::create({.same_host = true, .fetching = Fetching::kAlways}).value();
  End a(*host, "127.77.30.8", {.with_channel = true});
  End b(*host, "127.77.30.9");
  testing::connect(a, b);
  a.nic->moderate_cq(a.send_cq, {.count = 4, .period = std::chrono::milliseconds(1)});
  ASSERT_TRUE(a.nic->arm(a.send_cq, false));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the runner sleeps again
  SendPosting posting = a.nic->post_sends(a.qp);
  const auto request = posting.begin();
  ASSERT_TRUE(request);
  **request = {.id = 2,
               .opcode = SendOpcode::kRead,
               .signaled = true,
               .remote_address = b.base(),
               .rkey = b.region->key};
  posting.make_pieces(1).front() = a.piece(0, 1000);
  ASSERT_TRUE(posting.end());
  ASSERT_TRUE(a.nic->send(a.qp, posting));
  ASSERT_EQ(a.nic->counters().direct_requests, 1U);
  pollfd waiting{.fd = a.channel->notifier().descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&waiting, 1, 20'000), 1);
}

TEST_F(SameHostTest, LongReadsAreFetchedOnlyWhereThatPays) {
  auto host = LiveHost::create({.same_host = true}).value();
  End a(*host, "127.77.30.28", {.memory_size = 1 << 20});
  End b(*host, "127.77.30.29", {.memory_size = 1 << 20});
  testing::connect(a, b);
  const auto read = [&](std::uint32_t length) {
    ASSERT_TRUE(a.send(
        {.id = 2, .opcode = SendOpcode::kRead, .remote_address = b.base(), .rkey = b.region->key},
        {a.piece(0, length)}));
    EXPECT_EQ(await(a, a.send_cq).status, Status::kSuccess);
  };
  read(kShortRead);
  EXPECT_EQ(a.nic->counters().direct_requests, 1U);
  read(kShortRead + 1);
  EXPECT_EQ(a.nic->counters().direct_requests, fetching_pays() ? 2U : 1U);
}

/// Memory is shared, too, if nothing else runs in this process (sanitizers do).
class SharedMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::comes_to_be_alone()) GTEST_SKIP() << "there are other threads in this process";
  }
  void write(const End& from, const End& to, std::size_t offset, std::uint32_t length) {
    ASSERT_TRUE(from.send({.id = 1,
                           .opcode = SendOpcode::kWrite,
                           .remote_address = to.base() + offset,
                           .rkey = to.region->key},
                          {from.piece(0, length)}));
  }

  std::unique_ptr<LiveHost> host_ =
      LiveHost::create({.same_host = true, .share_memory = true}).value();
};

// In the call, unless the runner is just inside the shard: then by that.
TEST_F(SharedMemoryTest, WritesAndReadsAreDoneWithoutPackets) {
  End a(*host_, "127.77.30.10");
  End b(*host_, "127.77.30.11");
  testing::connect(a, b);
  std::ranges::fill(a.memory, std::byte{5});
  write(a, b, 8192, 20'000);
  EXPECT_EQ(await(a, a.send_cq).status, Status::kSuccess);
  EXPECT_EQ(b.memory[8192 + 19'999], std::byte{5});
  std::ranges::fill(b.memory, std::byte{6});
  ASSERT_TRUE(a.send({.id = 2,
                      .opcode = SendOpcode::kRead,
                      .remote_address = b.base() + 8192,
                      .rkey = b.region->key},
                     {a.piece(0, 1000)}));
  EXPECT_EQ(await(a, a.send_cq).status, Status::kSuccess);
  EXPECT_EQ(a.memory[999], std::byte{6});
  EXPECT_EQ(a.nic->counters().direct_requests, 2U);
  EXPECT_EQ(a.nic->counters().packets_sent, 0U);
}

TEST_F(SharedMemoryTest, TheEndsOfARegionAreReachedByPackets) {
  End a(*host_, "127.77.30.12");
  End b(*host_, "127.77.30.13");
  testing::connect(a, b);
  std::ranges::fill(a.memory, std::byte{5});
  // A region that does not begin on a page, wherever the memory does.
  const std::size_t from = b.base() % 4096 == 0 ? 100 : 0;
  constexpr std::uint32_t kLength = 60 << 10;
  MemoryRegion* const uneven =
      b.nic
          ->register_memory(b.pd, b.memory.data() + from, kLength, b.base() + from,
                            engine::kLocalWrite | engine::kRemoteWrite)
          .value();
  ASSERT_TRUE(a.send({.id = 1,
                      .opcode = SendOpcode::kWrite,
                      .remote_address = b.base() + from,
                      .rkey = uneven->key},
                     {a.piece(0, kLength)}));
  EXPECT_EQ(await(a, a.send_cq).status, Status::kSuccess);
  EXPECT_EQ(std::ranges::count(b.memory, std::byte{5}), kLength);
  ASSERT_TRUE(b.nic->deregister_memory(uneven));
  EXPECT_EQ(a.nic->counters().direct_requests, 0U);
  // All is acknowledged, and the next one is direct again.
  write(a, b, 8192, 100);
  EXPECT_EQ(await(a, a.send_cq).status, Status::kSuccess);
  EXPECT_EQ(a.nic->counters().direct_requests, 1U);
}

TEST_F(SharedMemoryTest, WhatIsNotAllowedIsRefusedByThePeer) {
  End a(*host_, "127.77.30.14");
  End b(*host_, "127.77.30.15");
  testing::connect(a, b);
  ASSERT_TRUE(b.nic->change_memory(b.region, b.pd, engine::kLocalWrite | engine::kRemoteRead));
  write(a, b, 8192, 100);
  EXPECT_EQ(await(a, a.send_cq).status, Status::kRemoteAccessError);
  EXPECT_EQ(std::ranges::count(b.memory, std::byte{0}), 64 << 10);
}

TEST_F(SharedMemoryTest, AClosedQueuePairAndADeadPortLetNobodyIn) {
  End a(*host_, "127.77.30.16");
  End b(*host_, "127.77.30.17");
  testing::connect(a, b);
  std::ranges::fill(a.memory, std::byte{5});
  ASSERT_TRUE(b.to_state(engine::QpState::kErr));
  write(a, b, 8192, 100);
  EXPECT_EQ(b.memory[8192], std::byte{0});
  EXPECT_EQ(a.nic->counters().direct_requests, 0U);
}

TEST_F(SharedMemoryTest, AThreadedProgramsMemoryStaysItsOwn) {
  End a(*host_, "127.77.30.18");
  std::unique_ptr<End> b;
  std::thread([&] { b = std::make_unique<End>(*host_, "127.77.30.19"); }).join();
  testing::connect(a, *b);
  std::ranges::fill(a.memory, std::byte{5});
  write(a, *b, 8192, 100);
  EXPECT_EQ(await(a, a.send_cq).status, Status::kSuccess);
  EXPECT_EQ(b->memory[8192 + 99], std::byte{5});
  EXPECT_EQ(a.nic->counters().direct_requests, 0U);
}

/// Long messages are fetched by their receiver, or not, as the test wants.
class FetchingTest : public ::testing::TestWithParam<Fetching> {
 protected:
  static constexpr std::uint32_t kLong = 1 << 20;
  static constexpr testing::EndOptions kOptions{.memory_size = std::size_t{2} * kLong};
  static void fill(End& end, unsigned seed) {
    for (std::size_t i = 0; i < end.memory.size(); ++i)
      end.memory[i] = static_cast<std::byte>(i / 977 + seed);
  }
  static bool same(const End& left, const End& right) {
    return std::equal(left.memory.begin(), left.memory.begin() + kLong, right.memory.begin());
  }

  std::unique_ptr<LiveHost> host_ =
      LiveHost::create({.same_host = true, .fetching = GetParam()}).value();
};

TEST_P(FetchingTest, LongMessagesComeWhole) {
  End a(*host_, "127.77.30.22", kOptions);
  End b(*host_, "127.77.30.23", kOptions);
  testing::connect(a, b);
  // Each end has said by now that it fetches.
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    ASSERT_TRUE(to->receive(20, {to->piece(0, 8)}));
    ASSERT_TRUE(from->send({.id = 10, .opcode = SendOpcode::kSend}, {from->piece(0, 8)}));
    EXPECT_EQ(await(*to, to->receive_cq).status, Status::kSuccess);
    EXPECT_EQ(await(*from, from->send_cq).status, Status::kSuccess);
  }
  for (unsigned i = 0; i < 20; ++i) {
    fill(a, i);
    ASSERT_TRUE(b.receive(21, {b.piece(0, kLong)}));
    ASSERT_TRUE(a.send({.id = 11, .opcode = SendOpcode::kSend}, {a.piece(0, kLong)}));
    EXPECT_EQ(await(b, b.receive_cq).byte_count, kLong);
    EXPECT_EQ(await(a, a.send_cq).status, Status::kSuccess);
    EXPECT_TRUE(same(a, b)) << i;
    fill(b, i + 100);
    ASSERT_TRUE(a.receive(22, {}));
    ASSERT_TRUE(b.send({.id = 12,
                        .opcode = SendOpcode::kWriteWithImm,
                        .remote_address = a.base(),
                        .rkey = a.region->key},
                       {b.piece(0, kLong)}));
    EXPECT_EQ(await(a, a.receive_cq).byte_count, kLong);
    EXPECT_EQ(await(b, b.send_cq).status, Status::kSuccess);
    EXPECT_TRUE(same(a, b)) << i;
  }
  const std::uint64_t fetched = a.nic->counters().payloads_fetched;
  constexpr std::uint64_t kMiddles = kLong / wire::kMaxChannelMtu - 2;
  EXPECT_EQ(fetched, GetParam() == Fetching::kAlways ? 20 * kMiddles : 0);
  EXPECT_EQ(b.nic->counters().payloads_fetched, fetched);
}

// Whatever the receiver has fetched by then, no message is told of that the program had taken back.
TEST_P(FetchingTest, WhatIsFlushedMayChangeAtOnce) {
  End a(*host_, "127.77.30.24", kOptions);
  End b(*host_, "127.77.30.25", kOptions);
  testing::connect(a, b);
  std::ranges::fill(a.memory, std::byte{0x11});
  ASSERT_TRUE(b.receive(21, {b.piece(0, kLong)}));
  ASSERT_TRUE(a.send({.id = 11, .opcode = SendOpcode::kSend}, {a.piece(0, kLong)}));
  ASSERT_TRUE(a.to_state(engine::QpState::kErr));
  std::ranges::fill(a.memory, std::byte{0xEE});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto received = b.poll(b.receive_cq);
  if (!received.empty() && received.front().status == Status::kSuccess) {
    EXPECT_EQ(std::ranges::count(b.memory, std::byte{0xEE}), 0);
  }
  EXPECT_FALSE(a.poll(a.send_cq).empty());
}

INSTANTIATE_TEST_SUITE_P(All, FetchingTest, ::testing::Values(Fetching::kAlways, Fetching::kNever));

}  // namespace
}  // namespace verbena::nic
