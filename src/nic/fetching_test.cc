// SPDX-License-Identifier: Apache-2.0
#include "nic/fetching.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>

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
  EXPECT_EQ(fetch(sys::getpid(), address, to), Fetched::kAll);
  EXPECT_TRUE(std::ranges::equal(first, std::span(from).first(2)));
  EXPECT_TRUE(std::ranges::equal(second, std::span(from).subspan(2, 3)));
  EXPECT_EQ(fetch(kNobody, address, to), Fetched::kRefused);
  EXPECT_EQ(fetch(sys::getpid(), 16, to), Fetched::kMissing) << "no memory is there";
}

TEST(Fetching, FromAProcessThatIsStoppedAndNoneThatIsGone) {
  std::byte value{7};
  const pid_t child = ::fork();
  if (child == 0) {
    value = std::byte{8};
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  std::byte got{};
  const Bytes to(&got, 1);
  const auto address = reinterpret_cast<std::uintptr_t>(&value);
  EXPECT_EQ(fetch(child, address, std::span(&to, 1)), Fetched::kAll);
  EXPECT_EQ(got, std::byte{8});
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(fetch(child, address, std::span(&to, 1)), Fetched::kRefused);
}

}  // namespace
}  // namespace verbena::nic
