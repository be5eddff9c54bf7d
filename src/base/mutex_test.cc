// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace verbena {
namespace {

TEST(Mutex, OneHoldsItAtATime) {
  Mutex mutex;
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(Mutex, WhoWaitsGetsIt) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  Mutex mutex;
  int count = 0;  // not atomic: the lock guards it
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < kRounds; ++round) {
          const std::scoped_lock lock(mutex);
          const int before = count;
          if (round % 100 == 0) std::this_thread::yield();  // others find it held, and sleep
          count = before + 1;
        }
      });
    }
  }
  EXPECT_EQ(count, kThreads * kRounds);
}

}  // namespace
}  // namespace verbena
