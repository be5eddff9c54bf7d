// SPDX-License-Identifier: Apache-2.0
#include "base/fence.h"

#include <gtest/gtest.h>

#include <thread>

namespace verbena {
namespace {

/// A cache line of its own for each thing that one writes and the other reads.
struct alignas(64) Word {
  std::atomic<int> value{0};
};

/// Waits until the other one has come as far. They may share a processor.
void await(const Word& other, int round) {
  for (int looks = 0; other.value.load(std::memory_order_acquire) < round; ++looks)
    if (looks > 1000) std::this_thread::yield();
}

/// Either side writes its own and then reads the other's: not both may find nothing. Without the
/// fences a few rounds of these do.
TEST(Fence, AtLeastOneSeesTheOther) {
  constexpr int kRounds = 20'000;
  Word frequent, seldom, frequent_came, seldom_came;
  int seen_by_frequent = 0;
  std::jthread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      frequent_came.value.store(2 * round - 1, std::memory_order_release);
      await(seldom_came, 2 * round - 1);
      frequent.value.store(round, std::memory_order_relaxed);
      fence_lightly();
      seen_by_frequent = seldom.value.load(std::memory_order_relaxed);
      frequent_came.value.store(2 * round, std::memory_order_release);
      await(seldom_came, 2 * round);
    }
  });
  int neither = 0;
  for (int round = 1; round <= kRounds; ++round) {
    seldom_came.value.store(2 * round - 1, std::memory_order_release);
    await(frequent_came, 2 * round - 1);
    seldom.value.store(round, std::memory_order_relaxed);
    fence_everywhere();
    const int seen_by_seldom = frequent.value.load(std::memory_order_relaxed);
    await(frequent_came, 2 * round);
    neither += seen_by_frequent != round && seen_by_seldom != round ? 1 : 0;
    seldom_came.value.store(2 * round, std::memory_order_release);
  }
  EXPECT_EQ(neither, 0);
}

}  // namespace
}  // namespace verbena
