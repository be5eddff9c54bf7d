// SPDX-License-Identifier: Apache-2.0
#include "link/fetch_choice.h"

#include <gtest/gtest.h>

namespace verbena::link {
namespace {

using Way = FetchChoice::Way;

constexpr std::size_t kMebibyte = 1 << 20;
constexpr std::size_t kGibibyte = 1 << 30;

/// A peer that sends one message of a mebibyte after the other, by packets of 32 KiB.
class FetchChoiceTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kPacket = 32 << 10;

  /// Of so many bytes, how many were fetched.
  std::size_t stream(std::size_t bytes) {
    std::size_t fetched = 0;
    for (std::size_t done = 0; done < bytes; done += kMebibyte) {
      if (choice.fetches()) fetched += kMebibyte;
      message();
    }
    return fetched;
  }
  void message() {
    if (choice.fetches()) return place(Way::kFetch, kMebibyte, fetch, false);
    for (std::size_t at = kPacket; at <= kMebibyte; at += kPacket)
      place(Way::kRing, kPacket, ring * kPacket / kMebibyte, at != kMebibyte);
  }
  void place(Way way, std::size_t bytes, Duration takes, bool goes_on) {
    choice.begin(way, bytes, goes_on);
    const Duration placing = goes_on ? takes / 4 : takes;  // the rest is the peer's
    now += placing;
    choice.end();
    now += takes - placing;
  }

  Time now{};
  Duration ring = std::chrono::microseconds(40);  ///< for a mebibyte
  Duration fetch = std::chrono::microseconds(80);
  FetchChoice choice{[this] { return now; }};
};

TEST_F(FetchChoiceTest, TheRingWhileItIsTheFaster) {
  EXPECT_LT(stream(10 * kGibibyte), kGibibyte / 10);
  EXPECT_FALSE(choice.fetches());
}

TEST_F(FetchChoiceTest, TheKernelWhileTheRingIsSlow) {
  ring = std::chrono::microseconds(450);
  EXPECT_GT(stream(10 * kGibibyte), 10 * kGibibyte - kGibibyte / 10);
  EXPECT_TRUE(choice.fetches());
}

TEST_F(FetchChoiceTest, AProcessorThatMovesIsNoticed) {
  stream(4 * kGibibyte);
  ring = std::chrono::microseconds(450);
  EXPECT_LT(256 * kMebibyte - stream(256 * kMebibyte), 8 * kMebibyte) << "at once";
  stream(4 * kGibibyte);
  ring = std::chrono::microseconds(40);
  EXPECT_LT(stream(4 * kGibibyte), 2 * kGibibyte) << "by the next trial";
  EXPECT_FALSE(choice.fetches());
}

TEST_F(FetchChoiceTest, WhoIsApartFromTheBeginningDoesNotWaitLong) {
  ring = std::chrono::microseconds(450);
  stream(16 * kMebibyte);
  EXPECT_TRUE(choice.fetches());
}

TEST_F(FetchChoiceTest, WhatIsLittleFasterIsNotTaken) {
  fetch = std::chrono::microseconds(36);
  stream(2 * kGibibyte);
  EXPECT_FALSE(choice.fetches());
}

TEST_F(FetchChoiceTest, InterruptionsAreNotHeldAgainstAWay) {
  std::size_t fetched = 0;
  for (int i = 0; i < 1000; ++i) {
    fetched += stream(2 * kMebibyte);
    choice.begin(Way::kRing, kPacket, true);
    now += std::chrono::milliseconds(4);
    choice.end();
  }
  EXPECT_LT(fetched, 50 * kMebibyte) << "of 2000";
}

TEST_F(FetchChoiceTest, PausesOfTheProgramAreNotHeldAgainstAWay) {
  std::size_t fetched = 0;
  for (std::size_t i = 0; i < 4096; ++i) {
    if (choice.fetches()) ++fetched;
    message();
    now += std::chrono::milliseconds(3);
  }
  EXPECT_LT(fetched, 100U);
  ring = std::chrono::microseconds(450);
  for (std::size_t i = 0; i < 256; ++i) {
    message();
    now += std::chrono::milliseconds(3);
  }
  EXPECT_TRUE(choice.fetches());
}

TEST_F(FetchChoiceTest, AClockThatGoesBackDoesNoHarm) {
  for (int i = 0; i < 100'000; ++i) {
    choice.begin(i % 3 == 0 ? Way::kFetch : Way::kRing, kMebibyte, i % 2 == 0);
    now -= std::chrono::microseconds(i % 7);
    choice.end();
  }
}

TEST_F(FetchChoiceTest, TurnsToFetchingHaveNumbers) {
  EXPECT_EQ(choice.turn_to_fetching(), 0U);
  ring = std::chrono::microseconds(450);
  while (!choice.fetches()) message();
  const std::uint32_t first = choice.turn_to_fetching();
  EXPECT_NE(first, 0U);
  ring = std::chrono::microseconds(1);
  while (choice.fetches()) message();
  EXPECT_EQ(choice.turn_to_fetching(), 0U);
  ring = std::chrono::microseconds(450);
  while (!choice.fetches()) message();
  EXPECT_GT(choice.turn_to_fetching(), first);
}

/// Messages of two packets have no middle that could be fetched.
TEST_F(FetchChoiceTest, ATrialEndsThoughNothingGoesTheWayThatIsTried) {
  const auto turns_back = [&] {
    for (std::size_t bytes = 0; bytes < 20 * kMebibyte && choice.fetches(); bytes += kPacket)
      place(Way::kRing, kPacket, std::chrono::microseconds(2), false);
    return !choice.fetches();
  };
  for (int i = 0; i < 3; ++i) {
    while (!choice.fetches()) message();
    EXPECT_TRUE(turns_back()) << i;
  }
}

/// Neither is placed before both are here.
TEST_F(FetchChoiceTest, WhatTwoChannelsBringAtOnceTellsNothing) {
  ring = std::chrono::microseconds(450);
  const auto both = [&] {
    choice.begin(Way::kRing, kMebibyte, false);
    choice.begin(Way::kRing, kPacket, true);
    now += ring;
    choice.end();
  };
  for (int i = 0; i < 1000; ++i) both();
  EXPECT_FALSE(choice.fetches());
  EXPECT_GT(stream(kGibibyte), kGibibyte / 2) << "as if nothing had been";
}

}  // namespace
}  // namespace verbena::link
