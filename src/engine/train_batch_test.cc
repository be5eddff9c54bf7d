// SPDX-License-Identifier: Apache-2.0
//
// What is placed, while a program looks.
#include "engine/train_batch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <functional>
#include <numeric>
#include <ranges>
#include <vector>

namespace verbena::engine {
namespace {

constexpr std::size_t kMost = 160;
constexpr std::byte kBefore{0x00};
constexpr std::byte kNew{0x5A};
constexpr std::byte kUsed{0xFF};

using Memory = std::array<std::byte, kMost>;

/// Places some bytes in a process of its own, one instruction at a time, and looks at the memory
/// after each.
class Place : public ::testing::Test {
 protected:
  Place() {
    void* const shared =
        ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memory_ = shared == MAP_FAILED ? nullptr : static_cast<Memory*>(shared);
  }
  ~Place() override { ::munmap(memory_, sizeof(Memory)); }

  void SetUp() override {
    ASSERT_NE(memory_, nullptr);
    // What is done once is done before the first step.
    ASSERT_TRUE(place(memory_->data(), std::vector(kMost, kNew)));
    if (!step_through(0, 1, [] {})) GTEST_SKIP() << "processes may not be traced here (ptrace)";
  }

  bool step_through(std::size_t offset, std::size_t size, const std::function<void()>& look) {
    memory_->fill(kBefore);
    const std::vector<std::byte> data(size, kNew);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(2);
      ::raise(SIGSTOP);
      ::_exit(place(memory_->data() + offset, data) ? 0 : 1);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
      look();
      ::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  /// Which bytes changed, in that order, for a program that takes what came and puts something else
  /// there at once.
  std::vector<std::size_t> changes_of(std::size_t offset, std::size_t size) {
    std::vector<std::size_t> changes;
    EXPECT_TRUE(step_through(offset, size, [&] {
      for (std::size_t i = 0; i < kMost; ++i) {
        if ((*memory_)[i] != kNew) continue;
        (*memory_)[i] = kUsed;
        changes.push_back(i);
      }
    }));
    return changes;
  }

  Memory* memory_;
};

TEST_F(Place, WritesEachByteOnceAndInOrder) {
  for (const std::size_t size : {1, 2, 4, 7, 8, 12, 15, 16, 17, 24, 31, 33, 48, 64}) {
    for (const std::size_t offset : {0, 1, 3, 4, 8, 14}) {
      std::vector<std::size_t> wanted(size);
      std::iota(wanted.begin(), wanted.end(), offset);
      EXPECT_EQ(changes_of(offset, size), wanted) << size << " bytes at " << offset;
    }
  }
}

TEST_F(Place, WritesTheEndOfMoreOnceAndLast) {
  for (const std::size_t size : {65, 100, 128, 150}) {
    std::vector<std::size_t> wanted(kPolled);
    std::iota(wanted.begin(), wanted.end(), 2 + size - kPolled);
    std::vector<std::size_t> changes = changes_of(2, size);
    const auto end = std::ranges::find(changes, wanted.front());
    EXPECT_EQ(std::vector(end, changes.end()), wanted) << size;
    EXPECT_GE(end - changes.begin(), static_cast<std::ptrdiff_t>(size - kPolled));
  }
}

TEST_F(Place, WritesAnAlignedWordInOneMove) {
  std::vector<std::ptrdiff_t> counts{0};
  EXPECT_TRUE(step_through(4, 28, [&] {
    const auto count = std::ranges::count(*memory_, kNew);
    if (count != counts.back()) counts.push_back(count);
  }));
  EXPECT_EQ(counts, (std::vector<std::ptrdiff_t>{0, 4, 12, 20, 28}));
}

}  // namespace
}  // namespace verbena::engine
