// SPDX-License-Identifier: Apache-2.0
//
// Which objects several threads may use at once, and which go from one to another:
// docs/api/coverage.md, "Threads". What stays in one thread, and what sharing as const forbids, are
// rules of tests/compile_fail. The rdma_cm's objects have their tests in cm/threads_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "verbena/shared_receive_queue.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::End;
using testing::fill;
using testing::kEverything;
using testing::must;
using testing::next_of;
using testing::Pair;

constexpr std::size_t kThreads = 4;
constexpr int kRounds = 16;

/// Calls it in so many threads, each with its number, and waits for all.
template <typename Work>
void in_threads(std::size_t count, Work work) {
  std::vector<std::jthread> all;
  for (std::size_t i = 0; i < count; ++i) all.emplace_back([i, &work] { work(i); });
}

/// Until it is done: a queue that is full becomes free.
template <typename Post>
void post_when_there_is_room(Post post) {
  while (true) {
    const Result<> posted = post();
    if (posted) return;
    if (!posted.error().would_block()) return static_cast<void>(must(Result<>(posted)));
    std::this_thread::yield();
  }
}

TEST(Threads, AContextIsUsedByAllAtOnce) {
  const context ctx = must(context::open("vrb0"));
  const device_attributes can = must(ctx.query_device());
  in_threads(kThreads, [&](std::size_t /*me*/) {
    for (int i = 0; i < kRounds; ++i) {
      const auto pd = must(ctx.alloc_pd());
      const auto channel = must(ctx.create_channel());
      const auto cq = must(ctx.create_cq({.depth = 16, .channel = &channel}));
      const auto qp = must(pd.create_qp<rc>({.send_cq = cq, .recv_cq = cq}));
      EXPECT_EQ(must(ctx.query_device()).max_qp, can.max_qp);
      EXPECT_FALSE(must(ctx.gid_table()).empty());
      must(ctx.routable_gid());
      EXPECT_EQ(qp.state(), qp_state::reset);
    }
  });
}

TEST(Threads, AProtectionDomainIsUsedByAllAtOnce) {
  const End end("vrb0");
  const auto row = must(end.ctx.routable_gid());
  in_threads(kThreads, [&](std::size_t /*me*/) {
    std::vector<std::byte> borrowed(256);
    for (int i = 0; i < kRounds; ++i) {
      const auto mine = must(end.pd.reg_mr(std::span(borrowed), access::local_write));
      const auto owned = must(end.pd.alloc_mr(256, kEverything));
      const auto ah = must(end.pd.create_ah({.to = row.id, .source = row.index}));
      const auto srq = must(end.pd.create_srq({.max_wr = 4}));
      const auto qp =
          must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq, .srq = &srq}));
      EXPECT_NE(mine.lkey(), owned.lkey());
      must(srq.post_recv(must(owned.whole())));
    }
  });
}

// Two post to a queue pair while two others post its receives, and four poll the completions, two
// for each queue.
TEST(Threads, AQueuePairAndItsCompletionQueueAreUsedByAllAtOnce) {
  constexpr std::size_t kEach = 100;
  constexpr std::size_t kAll = 2 * kEach;
  Pair<rc> pair({.max_send_wr = 16, .max_recv_wr = kAll});
  std::array<std::atomic<int>, kAll> sent{};
  std::array<std::atomic<int>, kAll> received{};
  std::atomic<std::size_t> all_sent{0};
  std::atomic<std::size_t> all_received{0};

  const auto send = [&](std::size_t first) {
    for (std::size_t i = first; i < first + kEach; ++i) {
      const auto from = must(pair.left.memory.slice(i * 8, 8));
      fill(from.bytes(), static_cast<char>(i));
      post_when_there_is_room([&] { return pair.left_qp.send(from, {.wr_id = i}); });
    }
  };
  const auto receive = [&](std::size_t first) {
    for (std::size_t i = first; i < first + kEach; ++i) {
      const auto into = must(pair.right.memory.slice(i * 8, 8));
      post_when_there_is_room([&] { return pair.right_qp.post_recv(into, i); });
    }
  };
  const auto poll = [](const completion_queue& cq, auto& seen, std::atomic<std::size_t>& count) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    wc_batch<4> room;
    while (count < kAll && std::chrono::steady_clock::now() < until) {
      for (const work_completion& wc : must(cq.poll(room))) {
        must(wc.result());
        ++seen.at(wc.wr_id());
        ++count;
      }
      std::this_thread::yield();
    }
  };
  in_threads(8, [&](std::size_t me) {
    switch (me) {
      case 0: return receive(0);
      case 1: return receive(kEach);
      case 2: return send(0);
      case 3: return send(kEach);
      case 4:
      case 5: return poll(pair.left.cq, sent, all_sent);
      default: return poll(pair.right.cq, received, all_received);
    }
  });
  EXPECT_TRUE(std::ranges::all_of(sent, [](const auto& times) { return times == 1; }));
  EXPECT_TRUE(std::ranges::all_of(received, [](const auto& times) { return times == 1; }));
}

/// All write what is in parts of it: bytes are kept apart as those of any memory are.
void slice_by_all(const Pair<rc>& pair, const memory_region& memory) {
  const std::size_t part = memory.size() / kThreads;
  const remote_region there = must(pair.right.memory.remote());
  in_threads(kThreads, [&](std::size_t me) {
    const auto mine = must(memory.slice(me * part, part));
    fill(mine.bytes(), static_cast<char>('a' + me));
    const auto to = must(there.slice(me * part, part));
    post_when_there_is_room([&] { return pair.left_qp.write(mine, to, {.wr_id = me}); });
    EXPECT_EQ(mine.lkey(), memory.lkey());
  });
  for (std::size_t i = 0; i < kThreads; ++i) must(pair.left.next().result());
  testing::settle(pair.right.pd);
  for (std::size_t i = 0; i < kThreads; ++i)
    EXPECT_EQ(pair.right.memory.bytes()[i * part + part - 1], static_cast<std::byte>('a' + i));
}

TEST(Threads, ABorrowedRegionIsSlicedByAllAtOnce) {
  const Pair<rc> pair({.max_send_wr = 64});
  std::vector<std::byte> mine(2048);
  slice_by_all(pair, must(pair.left.pd.reg_mr(std::span(mine), access::local_write)));
}

TEST(Threads, AnOwnedRegionIsSlicedByAllAtOnce) {
  const Pair<rc> pair({.max_send_wr = 64});
  slice_by_all(pair, pair.left.memory);
}

TEST(Threads, ASharedReceiveQueueIsFilledByAllAtOnce) {
  const End end("vrb0");
  const auto srq = must(end.pd.create_srq({.max_wr = 64}));
  const auto room = must(end.memory.slice(0, 64));
  std::atomic<int> posted{0};
  in_threads(kThreads, [&](std::size_t me) {
    for (int i = 0; i < kRounds; ++i) {
      must(srq.post_recv(room, me));
      ++posted;
    }
  });
  EXPECT_EQ(posted, kThreads * kRounds);
}

// Two wait at a channel and take its events, while a third asks its queue for each.
TEST(Threads, AChannelIsUsedByAllAtOnce) {
  constexpr int kEvents = 50;
  const End end("vrb0");
  const End peer("vrb1");
  const auto channel = must(end.ctx.create_channel());
  must(channel.set_blocking(false));
  const auto cq = must(end.ctx.create_cq({.depth = 16, .channel = &channel}));
  auto qp = must(end.pd.create_qp<rc>({.send_cq = cq, .recv_cq = cq}));
  auto peer_qp = must(peer.pd.create_qp<rc>({.send_cq = peer.cq, .recv_cq = peer.cq}));
  const auto row = must(end.ctx.routable_gid());
  const qp_endpoint here = must(qp.endpoint(row.of, row.index));
  const qp_endpoint there = must(peer_qp.endpoint(row.of, row.index));
  must(qp.connect(here, there));
  must(peer_qp.connect(there, here));
  const auto until = std::chrono::steady_clock::now() + 60s;
  std::atomic<int> taken{0};
  in_threads(3, [&](std::size_t me) {
    if (me == 0) {
      for (int i = 0; i < kEvents; ++i) {
        must(cq.request_notification());
        must(qp.write(must(end.memory.slice(0, 8)), must(peer.memory.remote()), {.wr_id = 5}));
        EXPECT_EQ(next_of(cq).wr_id(), 5);
        while (taken <= i && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      }
      return;
    }
    while (taken < kEvents && std::chrono::steady_clock::now() < until) {
      if (!must(channel.wait(10ms))) continue;
      const auto event = channel.get_event();
      if (!event && event.error().would_block()) continue;  // the other one has it
      EXPECT_EQ(must(event).cq, cq.native());
      ++taken;
    }
  });
  EXPECT_EQ(taken, kEvents);
}

/// A queue that asks for an event, has one by a receive that is flushed, and goes at once.
void make_and_destroy(const End& end, const completion_channel& channel) {
  auto cq = must(end.ctx.create_cq({.depth = 16, .channel = &channel}));
  auto qp = must(end.pd.create_qp<ud>({.send_cq = cq, .recv_cq = cq}));
  must(qp.activate(port{1}, qkey{1}));
  must(qp.post_recv(must(end.memory.slice(0, 64)), 3));
  must(cq.request_notification());
  must(qp.to_error());
  EXPECT_EQ(next_of(cq).wr_id(), 3);
  must(qp.close());
  must(cq.close());
}

// Destroying a queue waits for its events to be acknowledged, whoever is about to do that.
TEST(Threads, AQueueIsDestroyedWhileAnotherThreadTakesItsEvent) {
  const End end("vrb0");
  const auto channel = must(end.ctx.create_channel());
  must(channel.set_blocking(false));
  std::atomic<bool> over{false};
  const auto until = std::chrono::steady_clock::now() + 60s;
  in_threads(2, [&](std::size_t me) {
    if (me == 0) {
      for (int i = 0; i < 3000; ++i) make_and_destroy(end, channel);
      over = true;
      return;
    }
    while (!over) {
      if (const auto event = channel.get_event(); !event) {
        EXPECT_TRUE(event.error().would_block()) << event.error().message();
      }
      if (std::chrono::steady_clock::now() < until) continue;
      ADD_FAILURE() << "the queue waits for ever for its event";
      std::abort();  // the other thread never ends
    }
  });
}

// --- From one thread to another

TEST(Threads, AnOwnedRegionGoesToAnotherThread) {
  const End end("vrb0");
  auto memory = must(end.pd.alloc_mr(4096, access::local_write));
  fill(memory.bytes(), 'x');
  const std::weak_ptr<const void> lives = memory.lease();
  std::thread other([owned = std::move(memory)]() mutable {
    EXPECT_EQ(owned.bytes().back(), std::byte{'x'});
    must(owned.change_access(access::local_write | access::remote_read));
    must(owned.slice(0, 4096));
    must(owned.close());
  });
  must(end.pd.alloc_mr(64, access::local_write));  // its parent is used here meanwhile
  other.join();
  EXPECT_TRUE(lives.expired());
}

TEST(Threads, ABorrowedRegionEndsInAnotherThreadThanItsMemory) {
  const End end("vrb0");
  std::vector<std::byte> mine(512);
  auto region =
      std::make_unique<memory_region>(must(end.pd.reg_mr(std::span(mine), access::local_write)));
  std::thread([of = std::move(region)]() mutable { of.reset(); }).join();
  fill(mine, 'y');
}

/// All handles of an end are made here and end there; what comes first is held by what comes later.
TEST(Threads, HandlesEndInWhicheverThreadHasThem) {
  std::array<std::thread, 4> others;
  {
    End end("vrb0");
    auto qp = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
    others[0] = std::thread([ctx = std::move(end.ctx)] { EXPECT_FALSE(ctx.name().empty()); });
    others[1] = std::thread([pd = std::move(end.pd)] { must(pd.alloc_mr(64, kEverything)); });
    others[2] = std::thread([cq = std::move(end.cq)] { EXPECT_GE(cq.depth(), 1024U); });
    others[3] = std::thread([made = std::move(qp)]() mutable { must(made.to_error()); });
  }
  for (auto& one : others) one.join();
}

TEST(Threads, AQueuePairGoesToTheThreadThatConnectsIt) {
  Pair<rc> pair;
  auto moved = std::make_unique<Pair<rc>>(std::move(pair));
  std::thread([of = std::move(moved)] {
    fill(of->left.memory.bytes(), 'z');
    must(of->right_qp.post_recv(must(of->right.memory.slice(0, 64)), 1));
    must(of->left_qp.send(must(of->left.memory.slice(0, 64))));
    EXPECT_EQ(of->right.next().wr_id(), 1);
    EXPECT_EQ(of->right.memory.bytes()[63], std::byte{'z'});
  }).join();
}

}  // namespace
}  // namespace verbena::verbs
