// SPDX-License-Identifier: Apache-2.0
#include "engine/window.h"

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

constexpr std::uint32_t kKiB = 1024;

/// Acknowledged bytes until the window is so wide.
std::uint64_t bytes_until(Window& window, std::uint32_t limit) {
  std::uint64_t bytes = 0;
  while (window.limit() < limit) {
    window.progressed(4 * kKiB);
    bytes += 4 * kKiB;
  }
  return bytes;
}

TEST(Window, ProgressWidensItToItsEnd) {
  Window window(192 * kKiB, 16 * kKiB, 1024 * kKiB);
  EXPECT_EQ(bytes_until(window, 1024 * kKiB), 16U * (1024 - 192) * kKiB);
  window.progressed(1024 * kKiB);
  EXPECT_EQ(window.limit(), 1024 * kKiB);
}

TEST(Window, LossHalvesItToItsLeast) {
  Window window(192 * kKiB, 64 * kKiB, 1024 * kKiB);
  window.lost();
  EXPECT_EQ(window.limit(), 96 * kKiB);
  window.lost();
  window.lost();
  EXPECT_EQ(window.limit(), 64 * kKiB);
}

TEST(Window, BehindALossItComesNearSlowly) {
  Window window(192 * kKiB, 16 * kKiB, 1024 * kKiB);
  static_cast<void>(bytes_until(window, 1024 * kKiB));
  window.lost();
  EXPECT_EQ(bytes_until(window, 768 * kKiB), 16U * 256 * kKiB)
      << "as fast as ever to three quarters";
  EXPECT_EQ(bytes_until(window, 1024 * kKiB), 256U * 256 * kKiB) << "and then a sixteenth of that";
}

TEST(Window, AdmitsWhatFitsAndAlwaysOne) {
  Window window(10 * kKiB, kKiB, 10 * kKiB);
  EXPECT_EQ(window.admits(4 * kKiB, 5), 2U);
  window.charge(8 * kKiB);
  EXPECT_EQ(window.admits(4 * kKiB, 5), 0U);
  EXPECT_EQ(window.admits(2 * kKiB, 1), 1U);
  window.release(8 * kKiB);
  EXPECT_EQ(window.admits(64 * kKiB, 3), 1U) << "nothing is under way";
}

}  // namespace
}  // namespace verbena::engine
