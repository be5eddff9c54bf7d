// SPDX-License-Identifier: Apache-2.0
#include "nic/monotonic_clock.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <thread>

namespace verbena::nic {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Time kernel_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return Time(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

/// That it is the kernel's time, as often as it is asked in so long.
void expect_kernel_time(milliseconds how_long) {
  constexpr microseconds kClose(1);
  const Time end = kernel_now() + how_long;
  for (Time before = kernel_now(); before < end;) {
    const Time now = monotonic_now();
    const Time after = kernel_now();
    ASSERT_GE(now, before - kClose);
    ASSERT_LE(now, after + kClose);
    before = after;
  }
}

TEST(MonotonicClock, IsTheKernelsTime) { expect_kernel_time(milliseconds(50)); }

TEST(MonotonicClock, IsTheKernelsTimeBehindASleepToo) {
  for (const int pause : {1, 20, 3}) {
    std::this_thread::sleep_for(milliseconds(pause));
    expect_kernel_time(milliseconds(5));
  }
}

TEST(MonotonicClock, IsTheSameInAllThreads) {
  std::jthread other([] { expect_kernel_time(milliseconds(30)); });
  expect_kernel_time(milliseconds(30));
}

}  // namespace
}  // namespace verbena::nic
