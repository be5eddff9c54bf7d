// SPDX-License-Identifier: Apache-2.0
#include "base/fence.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

namespace verbena {
namespace {

/// Either side writes its own, then reads the other's: not both may find nothing.
TEST(Fence, AtLeastOneSeesTheOther) {
  constexpr int kRounds = 20'000;
  std::atomic<int> frequent{0};
  std::atomic<int> seldom{0};
  int seen_by_frequent = 0;
  int seen_by_seldom = 0;
  int neither = 0;
  std::barrier round(2);
  std::jthread other([&] {
    for (int i = 1; i <= kRounds; ++i) {
      round.arrive_and_wait();
      frequent.store(i, std::memory_order_relaxed);
      fence_lightly();
      seen_by_frequent = seldom.load(std::memory_order_relaxed);
      round.arrive_and_wait();
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    round.arrive_and_wait();
    seldom.store(i, std::memory_order_relaxed);
    fence_everywhere();
    seen_by_seldom = frequent.load(std::memory_order_relaxed);
    round.arrive_and_wait();
    neither += seen_by_frequent != i && seen_by_seldom != i ? 1 : 0;
  }
  EXPECT_EQ(neither, 0);
}

}  // namespace
}  // namespace verbena
