// SPDX-License-Identifier: Apache-2.0
#include "nic/fetching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/sys.h"

namespace verbena::nic {
namespace {

constexpr pid_t kNobody = 0x3FFFFFFF;  ///< beyond any kernel's numbers

TEST(Fetching, OnlyFromAProcessThatIsThere) {
  EXPECT_TRUE(may_fetch_from(sys::getpid()));
  EXPECT_FALSE(may_fetch_from(kNobody));
  EXPECT_EQ(fetched_from(kNobody, Fetching::kAlways), 0);
  EXPECT_EQ(fetched_from(0, Fetching::kAlways), 0) << "one that cannot be seen";
}

TEST(Fetching, AsIsWanted) {
  const pid_t own = sys::getpid();
  EXPECT_EQ(fetched_from(own, Fetching::kAlways), own);
  EXPECT_EQ(fetched_from(own, Fetching::kNever), 0);
  EXPECT_EQ(fetched_from(own, Fetching::kAuto), own);
  EXPECT_TRUE(fetches_long(Fetching::kAlways));
  EXPECT_FALSE(fetches_long(Fetching::kNever));
  EXPECT_EQ(fetches_long(Fetching::kAuto), fetching_pays());
  EXPECT_EQ(fetching_pays(), fetching_pays());
}

TEST(Fetching, FillsPlacesInOrder) {
  const std::array<std::byte, 6> from = {std::byte{1}, std::byte{2}, std::byte{3},
                                         std::byte{4}, std::byte{5}, std::byte{6}};
  std::array<std::byte, 2> first{};
  std::array<std::byte, 3> second{};
  const std::array<Bytes, 2> to = {first, second};
  const auto address = reinterpret_cast<std::uintptr_t>(from.data());
  EXPECT_TRUE(fetch(sys::getpid(), address, to));
  EXPECT_TRUE(std::ranges::equal(first, std::span(from).first(2)));
  EXPECT_TRUE(std::ranges::equal(second, std::span(from).subspan(2, 3)));
  EXPECT_FALSE(fetch(kNobody, address, to));
  EXPECT_FALSE(fetch(sys::getpid(), 16, to)) << "no memory is there";
  const std::vector<Bytes> many(1000, first);
  EXPECT_FALSE(fetch(sys::getpid(), address, many));
}

}  // namespace
}  // namespace verbena::nic
