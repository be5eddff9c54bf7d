// SPDX-License-Identifier: Apache-2.0
#include "base/fault_guard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/test_faults.h"

namespace verbena {
namespace {

using testing::FaultHandler;
using testing::Pages;

bool copy(std::byte* to, ConstBytes from) {
  return guarded(to, from.size(), [&] { std::memcpy(to, from.data(), from.size()); });
}

TEST(FaultGuard, AnAccessThatIsAllowedRuns) {
  const FaultHandler handler;
  std::byte to[8]{};
  const std::vector<std::byte> from(8, std::byte{7});
  EXPECT_TRUE(copy(to, from));
  EXPECT_EQ(std::memcmp(to, from.data(), 8), 0);
}

TEST(FaultGuard, MissingMemoryIsAResultAgainAndAgain) {
  const FaultHandler handler;
  const Pages pages(2);
  pages.vanish(1, 1);
  const std::vector<std::byte> from(64, std::byte{7});
  std::byte* const across = pages.bytes().data() + pages.page() - 32;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(copy(across, from));
    EXPECT_TRUE(copy(pages.bytes().data(), from));
  }
}

TEST(FaultGuard, WhatTheCallerHoldsIsAsBefore) {
  const FaultHandler handler;
  const Pages pages(1);
  pages.vanish(0, 1);
  // More than there are registers that a call keeps.
  std::uint64_t values[12];
  for (std::uint64_t i = 0; i < 12; ++i) values[i] = i * 0x1234567;
  std::uint64_t sum = 0;
  const double half = 0.5;
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(guarded(pages.bytes().data(), 8, [&] {
      *reinterpret_cast<volatile std::uint64_t*>(pages.bytes().data()) = values[round];
      values[0] = ~std::uint64_t{0};
    }));
    for (const std::uint64_t value : values) sum += value;
  }
  EXPECT_EQ(values[0], 0U);
  EXPECT_EQ(sum, std::uint64_t{3} * 66 * 0x1234567);
  EXPECT_EQ(half, 0.5);
}

TEST(FaultGuard, ReadOnlyMemoryRefusesWrites) {
  const FaultHandler handler;
  const Pages pages(1);
  pages.protect(0, 1, PROT_READ);
  const std::vector<std::byte> from(8);
  EXPECT_FALSE(copy(pages.bytes().data(), from));
}

TEST(FaultGuard, AFileThatBecameShorterIsMissingMemory) {
  const FaultHandler handler;
  const int fd = ::memfd_create("test", MFD_CLOEXEC);
  const long page = ::sysconf(_SC_PAGESIZE);
  ASSERT_EQ(::ftruncate(fd, page), 0);
  void* const mapped =
      ::mmap(nullptr, static_cast<std::size_t>(page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::vector<std::byte> from(8);
  EXPECT_TRUE(copy(static_cast<std::byte*>(mapped), from));
  ASSERT_EQ(::ftruncate(fd, 0), 0);
  EXPECT_FALSE(copy(static_cast<std::byte*>(mapped), from));  // SIGBUS
  ::munmap(mapped, static_cast<std::size_t>(page));
  ::close(fd);
}

TEST(FaultGuard, AThreadThatBlocksAllSignalsIsServedToo) {
  const FaultHandler handler;
  const Pages pages(1);
  pages.vanish(0, 1);
  bool copied = true;
  std::thread([&] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    const std::vector<std::byte> from(8);
    copied = copy(pages.bytes().data(), from);
  }).join();
  EXPECT_FALSE(copied);
}

using FaultGuardDeathTest = ::testing::Test;

TEST(FaultGuardDeathTest, AFaultElsewhereEndsTheProgram) {
  const FaultHandler handler;
  const Pages pages(2);
  pages.vanish(0, 2);
  EXPECT_EXIT(
      static_cast<void>(guarded(
          pages.bytes().data(), 8,
          [&] { *reinterpret_cast<volatile char*>(pages.bytes().data() + pages.page()) = 1; })),
      ::testing::KilledBySignal(SIGSEGV), "");
  // After a guarded access none is under way.
  EXPECT_EXIT(
      {
        const std::vector<std::byte> from(8);
        if (!copy(pages.bytes().data(), from))
          *reinterpret_cast<volatile char*>(pages.bytes().data()) = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(FaultGuardDeathTest, ASignalThatSomebodySendsIsNoFault) {
  const FaultHandler handler;
  std::byte byte{};
  EXPECT_EXIT(static_cast<void>(guarded(&byte, 1,
                                        [] {
                                          ::raise(SIGSEGV);
                                          ::raise(SIGSEGV);
                                        })),
              ::testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace verbena
