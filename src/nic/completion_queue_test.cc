// SPDX-License-Identifier: Apache-2.0
#include "nic/completion_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "nic/completion_channel.h"
#include "nic/test_host.h"

namespace verbena::nic {
namespace {

using engine::Completion;

class Listener final : public OverrunListener {
 public:
  void overrun(CompletionQueue& cq) override { overruns.push_back(&cq); }
  std::vector<CompletionQueue*> overruns;
};

class CompletionQueueTest : public ::testing::Test {
 protected:
  CompletionQueueTest() : channel(std::make_unique<testing::TestNotifier>()) {}

  static Completion completion(std::uint64_t id, std::uint32_t qp = 1, bool solicited = false) {
    return Completion{.id = id, .qp_number = qp, .solicited = solicited};
  }
  static std::vector<std::uint64_t> drain(CompletionQueue& queue) {
    std::array<Completion, 16> taken{};
    std::vector<std::uint64_t> ids;
    for (;;) {
      const std::uint32_t count = queue.take(taken);
      if (count == 0) return ids;
      for (std::uint32_t i = 0; i < count; ++i) ids.push_back(taken[i].id);
    }
  }

  Listener listener;
  CompletionChannel channel;
  int object = 0;
  CompletionQueue cq{4, &channel, &object, listener};
};

using Ids = std::vector<std::uint64_t>;

TEST_F(CompletionQueueTest, KeepsOrderAcrossTheRingsEnd) {
  std::array<Completion, 2> two{};
  std::uint64_t next = 0;
  std::uint64_t expected = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(cq.complete(completion(next++)));
    ASSERT_EQ(cq.take(two), 2U);
    EXPECT_EQ(two[0].id, expected++);
    EXPECT_EQ(two[1].id, expected++);
    if (round == 5) {  // from here on with three in the queue
      EXPECT_TRUE(cq.complete(completion(next++)));
    }
  }
  EXPECT_EQ(drain(cq), Ids{expected});
}

TEST_F(CompletionQueueTest, GivesAsManyAsAreWanted) {
  CompletionQueue large(100, nullptr, nullptr, listener);
  for (std::uint64_t id = 0; id < 90; ++id) EXPECT_TRUE(large.complete(completion(id)));
  std::array<Completion, 80> most{};
  ASSERT_EQ(large.take(most), most.size());
  for (std::uint64_t id = 0; id < most.size(); ++id) EXPECT_EQ(most[id].id, id);
  EXPECT_EQ(large.take(most), 10U);
  EXPECT_EQ(most[9].id, 89U);
}

TEST_F(CompletionQueueTest, TakesNoMoreThanThereIsRoomFor) {
  for (std::uint64_t id = 0; id < 3; ++id) EXPECT_TRUE(cq.complete(completion(id)));
  EXPECT_EQ(cq.take({}), 0U);
  std::array<Completion, 2> two{};
  EXPECT_EQ(cq.take(two), 2U);
  EXPECT_EQ(cq.take(two), 1U);
  EXPECT_EQ(two[0].id, 2U);
  EXPECT_EQ(cq.take(two), 0U);
}

TEST_F(CompletionQueueTest, OverrunIsToldOnceAndEndsTheQueue) {
  for (std::uint64_t id = 0; id < 4; ++id) EXPECT_TRUE(cq.complete(completion(id)));
  EXPECT_TRUE(listener.overruns.empty());
  EXPECT_FALSE(cq.complete(completion(4)));
  EXPECT_FALSE(cq.complete(completion(5)));
  EXPECT_EQ(listener.overruns, std::vector<CompletionQueue*>{&cq});
  EXPECT_TRUE(cq.overrun());
  EXPECT_FALSE(cq.ended()) << "what was in it can still be polled";
  EXPECT_EQ(drain(cq), (Ids{0, 1, 2, 3}));
  EXPECT_FALSE(cq.complete(completion(6)));
  std::array<Completion, 1> one{};
  EXPECT_EQ(cq.take(one), 0U);
  EXPECT_TRUE(cq.ended());
}

TEST_F(CompletionQueueTest, ARowIsAsManyCompletions) {
  EXPECT_TRUE(cq.complete(completion(0)));
  EXPECT_EQ(drain(cq), Ids{0});
  const Ids ids{7, 3, 5};
  EXPECT_EQ(cq.complete_row(completion(99, 6, true), ids), 3U);
  std::array<Completion, 4> taken{};
  ASSERT_EQ(cq.take(taken), 3U);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(taken[i].id, ids[i]);
    EXPECT_EQ(taken[i].qp_number, 6U);
    EXPECT_TRUE(taken[i].solicited);
  }
  EXPECT_EQ(cq.complete_row(completion(0), {}), 0U);
  EXPECT_TRUE(drain(cq).empty());
}

TEST_F(CompletionQueueTest, OfARowThatIsTooLongTheFirstOnesStay) {
  EXPECT_EQ(cq.complete_row(completion(0), Ids{1, 2, 3, 4, 5, 6}), 4U);
  EXPECT_EQ(listener.overruns, (std::vector<CompletionQueue*>{&cq}));
  EXPECT_EQ(drain(cq), (Ids{1, 2, 3, 4}));
  EXPECT_TRUE(cq.ended());
  EXPECT_EQ(cq.complete_row(completion(0), Ids{7}), 0U);
  EXPECT_EQ(listener.overruns.size(), 1U);
}

TEST_F(CompletionQueueTest, ARowNotifiesOnce) {
  cq.arm(false);
  EXPECT_EQ(cq.complete_row(completion(0), Ids{1, 2}), 2U);
  EXPECT_TRUE(channel.take());
  EXPECT_FALSE(channel.take());
  cq.arm(true);
  EXPECT_EQ(cq.complete_row(completion(0), Ids{3}), 1U);
  EXPECT_FALSE(channel.take());
  EXPECT_EQ(cq.complete_row(completion(0, 1, true), Ids{4}), 1U);
  EXPECT_TRUE(channel.take());
}

TEST_F(CompletionQueueTest, WhereTheOldestMayGoARowMayBeLongerThanTheRing) {
  cq.set_overwrites();
  EXPECT_EQ(cq.complete_row(completion(0), Ids{1, 2, 3, 4, 5, 6}), 6U);
  EXPECT_EQ(drain(cq), (Ids{3, 4, 5, 6}));
}

TEST_F(CompletionQueueTest, ArmingNotifiesOnceAndOnlyForWhatComesLater) {
  EXPECT_TRUE(cq.complete(completion(0)));
  cq.arm(false);
  EXPECT_FALSE(channel.take());
  EXPECT_TRUE(cq.complete(completion(1)));
  EXPECT_TRUE(cq.complete(completion(2)));
  const auto event = channel.take();
  ASSERT_TRUE(event);
  EXPECT_EQ(*event, &object);
  EXPECT_FALSE(channel.take());
}

TEST_F(CompletionQueueTest, SolicitedArmingSkipsOthersAndAllWins) {
  cq.arm(true);
  EXPECT_TRUE(cq.complete(completion(0)));
  EXPECT_FALSE(channel.take());
  EXPECT_TRUE(cq.complete(completion(1, 1, true)));
  EXPECT_TRUE(channel.take());
  cq.arm(false);
  cq.arm(true);
  EXPECT_TRUE(cq.complete(completion(2)));
  EXPECT_TRUE(channel.take());
}

TEST_F(CompletionQueueTest, PurgeRemovesOneQueuePairOnly) {
  EXPECT_TRUE(cq.complete(completion(9, 2)));
  EXPECT_TRUE(cq.complete(completion(9, 2)));
  EXPECT_EQ(drain(cq).size(), 2U);  // the ring now wraps around within the next four
  for (std::uint64_t id = 0; id < 4; ++id) {
    EXPECT_TRUE(cq.complete(completion(id, id % 2 == 0 ? 7 : 8)));
  }
  cq.purge(7);
  EXPECT_TRUE(cq.complete(completion(10, 9)));
  EXPECT_EQ(drain(cq), (Ids{1, 3, 10}));
}

TEST_F(CompletionQueueTest, ResizeKeepsWhatWaits) {
  EXPECT_TRUE(cq.complete(completion(0)));
  EXPECT_EQ(drain(cq), Ids{0});
  for (std::uint64_t id = 1; id < 5; ++id) EXPECT_TRUE(cq.complete(completion(id)));
  EXPECT_EQ(cq.resize(3).error().condition, std::errc::invalid_argument);
  EXPECT_EQ(cq.capacity(), 4U);
  EXPECT_TRUE(cq.resize(6));
  EXPECT_EQ(cq.capacity(), 6U);
  EXPECT_TRUE(cq.complete(completion(5)));
  EXPECT_TRUE(cq.complete(completion(6)));
  EXPECT_FALSE(cq.complete(completion(7)));
  EXPECT_EQ(drain(cq), (Ids{1, 2, 3, 4, 5, 6}));
}

TEST_F(CompletionQueueTest, SilencedQueuesEventsAreForgotten) {
  CompletionQueue other(4, &channel, nullptr, listener);
  cq.arm(false);
  other.arm(false);
  EXPECT_TRUE(cq.complete(completion(0)));
  EXPECT_TRUE(other.complete(completion(1)));
  cq.silence();
  const auto event = channel.take();
  ASSERT_TRUE(event);
  EXPECT_EQ(*event, nullptr);
  EXPECT_FALSE(channel.take());
}

TEST_F(CompletionQueueTest, NotifierCountsTheEventsThatWait) {
  auto& notifier = static_cast<testing::TestNotifier&>(channel.notifier());
  for (std::uint32_t i = 0; i < CompletionChannel::kMaxWaitingPerQueue + 5; ++i) {
    cq.arm(false);
    EXPECT_TRUE(cq.complete(completion(i)));
    drain(cq);
  }
  EXPECT_EQ(notifier.count, static_cast<int>(CompletionChannel::kMaxWaitingPerQueue));
  EXPECT_TRUE(channel.take());
  EXPECT_EQ(notifier.count, static_cast<int>(CompletionChannel::kMaxWaitingPerQueue) - 1);
  cq.silence();
  EXPECT_EQ(notifier.count, 0);
}

TEST_F(CompletionQueueTest, ManyThreadsFillAndDrain) {
  constexpr std::uint64_t kEach = 20'000;
  CompletionQueue shared(64, nullptr, nullptr, listener);
  std::atomic<std::uint64_t> in{0};
  std::atomic<std::uint64_t> out{0};
  std::atomic<std::uint64_t> sum{0};
  const auto fill = [&] {
    for (std::uint64_t i = 0; i < kEach; ++i) {
      while (in.load() - out.load() > 32) std::this_thread::yield();
      const std::uint64_t id = in.fetch_add(1);
      EXPECT_TRUE(shared.complete(completion(id)));
    }
  };
  const auto drain_some = [&] {
    std::array<Completion, 5> taken{};
    while (out.load() < 2 * kEach) {
      const std::uint32_t count = shared.take(taken);
      for (std::uint32_t i = 0; i < count; ++i) sum += taken[i].id;
      out += count;
      if (count == 0) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back(fill);
  for (int i = 0; i < 2; ++i) threads.emplace_back(drain_some);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum.load(), (2 * kEach) * (2 * kEach - 1) / 2);
  EXPECT_FALSE(shared.overrun());
}

}  // namespace
}  // namespace verbena::nic
