// SPDX-License-Identifier: Apache-2.0
#include "engine/timer_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/random.h"

namespace verbena::engine {
namespace {

struct Owner {
  struct Hooks {
    static constexpr std::size_t kNoTimer = ~std::size_t{0};
    std::size_t timer = kNoTimer;
  } hooks;
  Time when = kNever;  ///< what the heap is to know; kNever: it is not there
};

Time at(std::uint64_t microseconds) { return Time(std::chrono::microseconds(microseconds)); }

using Heap = BasicTimerHeap<Owner>;

/// The first is one of those that are due first, and as many are there as are to be.
void expect_right(const Heap& heap, const std::array<Owner, 64>& owners) {
  const auto waiting =
      std::ranges::count_if(owners, [](const Owner& owner) { return owner.when != kNever; });
  ASSERT_EQ(heap.size(), static_cast<std::size_t>(waiting));
  if (heap.empty()) return;
  const auto earliest = std::ranges::min(owners, {}, &Owner::when).when;
  ASSERT_EQ(heap.earliest(), earliest);
  ASSERT_EQ(heap.first().when, earliest);
}

TEST(TimerHeap, TellsWhoIsFirstWhateverWasDone) {
  constexpr std::uint64_t kSeeds = 20;
  constexpr int kSteps = 2000;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Heap heap(64);
    std::array<Owner, 64> owners;
    for (int step = 0; step < kSteps; ++step) {
      Owner& owner = owners[random.below(owners.size())];
      const Time when = at(random.below(1000));
      switch (random.below(4)) {
        case 0:
          heap.remove(owner);
          owner.when = kNever;
          break;
        case 1:
          if (heap.empty()) break;
          // Only later ones are allowed.
          heap.first().when = std::max(heap.first().when, when);
          heap.postpone_first(heap.first().when);
          break;
        default: heap.update(owner, when); owner.when = std::min(owner.when, when);
      }
      ASSERT_NO_FATAL_FAILURE(expect_right(heap, owners));
    }
  }
}

TEST(TimerHeap, WhoComesBehindAnotherThatWentHasItsPlace) {
  Heap heap(2);
  Owner first;
  Owner second;
  heap.update(first, at(5));
  const std::size_t place = first.hooks.timer;
  heap.remove(first);
  heap.update(second, at(7));
  EXPECT_EQ(second.hooks.timer, place);
  heap.update(first, at(9));
  EXPECT_NE(first.hooks.timer, place);
  EXPECT_EQ(&heap.first(), &second);
  heap.remove(second);
  EXPECT_EQ(&heap.first(), &first);
  EXPECT_EQ(heap.earliest(), at(9));
}

}  // namespace
}  // namespace verbena::engine
