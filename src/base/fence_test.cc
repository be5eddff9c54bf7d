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

/// Either side writes its own by its function and then reads the other's: in how many of so many
/// rounds neither finds anything.
template <typename First, typename Second>
int rounds_with_neither(First write_first, Second write_second) {
  constexpr int kRounds = 20'000;
  Word first, second, first_came, second_came;
  int seen_by_first = 0;
  std::jthread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      first_came.value.store(2 * round - 1, std::memory_order_release);
      await(second_came, 2 * round - 1);
      write_first(first.value, round);
      seen_by_first = second.value.load(std::memory_order_relaxed);
      first_came.value.store(2 * round, std::memory_order_release);
      await(second_came, 2 * round);
    }
  });
  int neither = 0;
  for (int round = 1; round <= kRounds; ++round) {
    second_came.value.store(2 * round - 1, std::memory_order_release);
    await(first_came, 2 * round - 1);
    write_second(second.value, round);
    const int seen_by_second = first.value.load(std::memory_order_relaxed);
    await(first_came, 2 * round);
    neither += seen_by_first != round && seen_by_second != round ? 1 : 0;
    second_came.value.store(2 * round, std::memory_order_release);
  }
  return neither;
}

/// Without the fences there are a few such rounds.
TEST(Fence, AtLeastOneSeesTheOther) {
  const auto lightly = [](std::atomic<int>& to, int value) {
    to.store(value, std::memory_order_relaxed);
    fence_lightly();
  };
  const auto everywhere = [](std::atomic<int>& to, int value) {
    to.store(value, std::memory_order_relaxed);
    fence_everywhere();
  };
  EXPECT_EQ(rounds_with_neither(lightly, everywhere), 0);
}

TEST(Fence, AStoreThatIsOneToo) {
  const auto store = [](std::atomic<int>& to, int value) { store_and_fence(to, value); };
  EXPECT_EQ(rounds_with_neither(store, store), 0);
}

}  // namespace
}  // namespace verbena
