// SPDX-License-Identifier: Apache-2.0
#include "nic/device_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace verbena::nic {
namespace {

template <typename T>
std::errc condition_of(const Result<T>& result) {
  return result ? std::errc{} : result.error().condition;
}

TEST(DeviceMemory, IsTakenFromAPoolAndGivenBack) {
  DeviceMemoryPool pool(1000);
  EXPECT_EQ(condition_of(pool.allocate(0, 0)), std::errc::invalid_argument);
  EXPECT_EQ(condition_of(pool.allocate(1001, 0)), std::errc::invalid_argument);
  EXPECT_EQ(condition_of(pool.allocate(~std::uint64_t{0}, 0)), std::errc::invalid_argument);
  EXPECT_EQ(condition_of(pool.allocate(8, 13)), std::errc::invalid_argument);
  auto first = pool.allocate(600, 6).value();
  auto second = pool.allocate(400, 12).value();
  EXPECT_NE(first->handle(), second->handle());
  EXPECT_EQ(condition_of(pool.allocate(1, 0)), std::errc::not_enough_memory);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second->part(0, 8)->data()) % 4096, 0U);
  first.reset();
  EXPECT_EQ(condition_of(pool.allocate(601, 0)), std::errc::not_enough_memory);
  EXPECT_TRUE(pool.allocate(600, 0));
}

TEST(DeviceMemory, IsCopiedInAlignedPieces) {
  DeviceMemoryPool pool(100);
  const auto memory = pool.allocate(100, 0).value();
  std::array<char, 104> text{"device memory"};
  std::array<char, 104> back{};
  ASSERT_TRUE(memory->copy_out(back.data(), 84, 16));
  EXPECT_EQ(back, (std::array<char, 104>{}));
  ASSERT_TRUE(memory->copy_in(84, text.data(), 16));
  ASSERT_TRUE(memory->copy_out(back.data(), 84, 16));
  EXPECT_STREQ(back.data(), text.data());
  EXPECT_TRUE(memory->copy_in(100, text.data(), 0));
  for (const auto& [offset, length, condition] :
       {std::tuple{3, 4, std::errc::invalid_argument},
        std::tuple{4, 3, std::errc::invalid_argument}, std::tuple{104, 4, std::errc::bad_address},
        std::tuple{0, 104, std::errc::bad_address}, std::tuple{-4, 8, std::errc::bad_address}}) {
    const auto at = static_cast<std::uint64_t>(offset);
    const auto size = static_cast<std::uint64_t>(length);
    EXPECT_EQ(condition_of(memory->copy_in(at, text.data(), size)), condition) << offset;
    EXPECT_EQ(condition_of(memory->copy_out(back.data(), at, size)), condition) << offset;
  }
  EXPECT_EQ(condition_of(memory->part(4, 97)), std::errc::invalid_argument);
  EXPECT_TRUE(memory->part(100, 0));
  EXPECT_EQ(memory->part(4, 96)->size(), 96U);
}

TEST(DeviceMemory, IsSharedWithAForkedChildWhichCanHaveItsOwn) {
  DeviceMemoryPool pool(64);
  const auto memory = pool.allocate(32, 0).value();
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint32_t word = 7;
    const bool done = pool.allocate(32, 0) && memory->copy_in(0, &word, sizeof word);
    ::_exit(done ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::uint32_t word = 0;
  ASSERT_TRUE(memory->copy_out(&word, 0, sizeof word));
  EXPECT_EQ(word, 7U);
}

}  // namespace
}  // namespace verbena::nic
