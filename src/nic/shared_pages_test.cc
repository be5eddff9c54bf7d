// SPDX-License-Identifier: Apache-2.0
#include "nic/shared_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "nic/memory_map.h"
#include "nic/peer_pages.h"
#include "nic/test_alone.h"

namespace verbena::nic {
namespace {

constexpr std::size_t kPage = 4096;

/// Pages of the program's, unmapped in the end.
class Pages {
 public:
  explicit Pages(std::size_t count, int flags = MAP_PRIVATE | MAP_ANONYMOUS)
      : size_(count * kPage),
        at_(static_cast<std::byte*>(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, -1, 0))) {
  }
  ~Pages() { unmap(); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void unmap() { ::munmap(at_, size_); }
  [[nodiscard]] Bytes bytes() const { return {at_, size_}; }
  [[nodiscard]] Bytes part(std::size_t from, std::size_t size) const {
    return bytes().subspan(from, size);
  }

 private:
  std::size_t size_;
  std::byte* at_;
};

class SharedPagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::comes_to_be_alone()) GTEST_SKIP() << "there are other threads in this process";
  }
  /// What a peer sees of shared memory.
  Bytes peer_view(const OpenMemory& memory, std::uint32_t key = 1 << 8) {
    const auto [writable, readable] = pages_->descriptors();
    if (!peer_)
      peer_ = PeerPages::open(ledger_, sys::OwnedFd(sys::fcntl(writable, F_DUPFD_CLOEXEC)),
                              sys::OwnedFd(sys::fcntl(readable, F_DUPFD_CLOEXEC)))
                  .value();
    return peer_->at({.key = key,
                      .home = memory.home,
                      .stretch = memory.offset,
                      .stretch_length = memory.pages.size(),
                      .into = 0,
                      .length = memory.pages.size()});
  }

  ForkLedger ledger_;
  std::unique_ptr<SharedPages> pages_ = SharedPages::create(ledger_, [] { return 0U; }).value();
  std::optional<PeerPages> peer_;
};

TEST_F(SharedPagesTest, ContentsStayAndPeersSeeThem) {
  const Pages memory(8);
  std::ranges::fill(memory.part(0, kPage), std::byte{1});
  std::ranges::fill(memory.part(3 * kPage, kPage), std::byte{3});
  const auto shared = pages_->enter(memory.part(100, 7 * kPage), true, true);
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->pages.data(), memory.bytes().data() + kPage);
  EXPECT_EQ(shared->pages.size(), 6 * kPage);
  EXPECT_EQ(memory.bytes()[0], std::byte{1});
  EXPECT_EQ(memory.bytes()[3 * kPage], std::byte{3});
  EXPECT_EQ(memory.bytes()[2 * kPage], std::byte{0});
  const Bytes peer = peer_view(*shared);
  ASSERT_EQ(peer.size(), 6 * kPage);
  EXPECT_EQ(peer[2 * kPage], std::byte{3});
  peer[2 * kPage] = std::byte{44};
  EXPECT_EQ(memory.bytes()[3 * kPage], std::byte{44});
  // Private again, and what the peer still writes goes nowhere.
  pages_->leave(memory.part(100, 7 * kPage));
  EXPECT_EQ(memory.bytes()[3 * kPage], std::byte{44});
  peer[2 * kPage] = std::byte{55};
  EXPECT_EQ(memory.bytes()[3 * kPage], std::byte{44});
}

TEST_F(SharedPagesTest, PeersCannotWriteWhatTheyMayOnlyRead) {
  const Pages memory(2);
  const auto shared = pages_->enter(memory.bytes(), true, false);
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->home, MemoryHome::kReadable);
  const int readable = pages_->descriptors()[1];
  EXPECT_EQ(::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, readable,
                   static_cast<off_t>(shared->offset)),
            MAP_FAILED);
  memory.bytes()[5] = std::byte{5};
  EXPECT_EQ(peer_view(*shared)[5], std::byte{5});
  pages_->leave(memory.bytes());
}

TEST_F(SharedPagesTest, WhatIsNotPlainMemoryStaysAsItIs) {
  const Pages shared_already(2, MAP_SHARED | MAP_ANONYMOUS);
  EXPECT_FALSE(pages_->enter(shared_already.bytes(), true, true));
  const Pages memory(4);
  EXPECT_FALSE(pages_->enter(memory.part(1, kPage), true, true));  // no whole page
  ASSERT_EQ(::mprotect(memory.bytes().data() + kPage, kPage, PROT_READ), 0);
  EXPECT_FALSE(pages_->enter(memory.bytes(), true, true));
  EXPECT_FALSE(pages_->enter(memory.part(2 * kPage, kPage), false, false));  // not to be shared
}

TEST_F(SharedPagesTest, ARegionThatIsThereAlreadyIsNotMoved) {
  const Pages memory(4);
  EXPECT_FALSE(pages_->enter(memory.part(0, 2 * kPage), false, false));
  EXPECT_FALSE(pages_->enter(memory.bytes(), true, true));
  pages_->leave(memory.part(0, 2 * kPage));
  pages_->leave(memory.bytes());
  EXPECT_TRUE(pages_->enter(memory.bytes(), true, true));
  // A second one of the same memory has the same place, and the first may go.
  const auto again = pages_->enter(memory.part(kPage, 2 * kPage), true, true);
  ASSERT_TRUE(again);
  memory.bytes()[kPage] = std::byte{7};
  EXPECT_EQ(peer_view(*again)[0], std::byte{7});
  pages_->leave(memory.bytes());
  memory.bytes()[kPage] = std::byte{8};
  EXPECT_EQ(peer_view(*again)[0], std::byte{8});
  pages_->leave(memory.part(kPage, 2 * kPage));
}

TEST_F(SharedPagesTest, WithASecondThreadNothingIsMoved) {
  const Pages before(2);
  const Pages during(2);
  ASSERT_TRUE(pages_->enter(before.bytes(), true, true));
  std::thread([&] {
    EXPECT_FALSE(pages_->enter(during.bytes(), true, true));
    // Those that were shared stay so, and serve the next region.
    pages_->leave(before.bytes());
    EXPECT_TRUE(pages_->enter(before.bytes(), true, true));
  }).join();
}

TEST_F(SharedPagesTest, UnmappedMemoryIsNotTouchedAndItsPlaceMayBeTakenAnew) {
  std::byte* at = nullptr;
  {
    const Pages memory(4);
    at = memory.bytes().data();
    ASSERT_TRUE(pages_->enter(memory.bytes(), true, true));
  }
  pages_->leave({at, 4 * kPage});  // unmapped before it was given up
  void* const again = ::mmap(at, 4 * kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(again, at);
  const auto shared = pages_->enter({at, 4 * kPage}, true, true);
  ASSERT_TRUE(shared);
  at[1] = std::byte{9};
  EXPECT_EQ(peer_view(*shared, 2 << 8)[1], std::byte{9});
  pages_->leave({at, 4 * kPage});
  ::munmap(at, 4 * kPage);
}

TEST_F(SharedPagesTest, ReplacedPagesAreOutOfPeersReach) {
  const Pages memory(2);
  const auto shared = pages_->enter(memory.bytes(), true, true);
  ASSERT_TRUE(shared);
  const Bytes peer = peer_view(*shared);
  peer[0] = std::byte{1};
  pages_->replace(shared->pages, 0);  // a region has them that is not closed to peers
  peer[0] = std::byte{2};
  EXPECT_EQ(memory.bytes()[0], std::byte{2});
  pages_->replace(shared->pages, 1);
  peer[0] = std::byte{3};
  EXPECT_EQ(memory.bytes()[0], std::byte{2});
  pages_->leave(memory.bytes());
  // What was made private is shared again as anything else.
  const auto again = pages_->enter(memory.bytes(), true, true);
  ASSERT_TRUE(again);
  peer_view(*again, 2 << 8)[1] = std::byte{4};
  EXPECT_EQ(memory.bytes()[0], std::byte{2});
  EXPECT_EQ(memory.bytes()[1], std::byte{4});
  pages_->leave(memory.bytes());
}

TEST_F(SharedPagesTest, WhatAnEarlierNicSharedIsSharedAgain) {
  const Pages memory(2);
  memory.bytes()[0] = std::byte{7};
  ASSERT_TRUE(pages_->enter(memory.bytes(), true, true));
  pages_->leave(memory.bytes());
  const auto next = SharedPages::create(ledger_, [] { return 0U; }).value();
  ASSERT_TRUE(next->enter(memory.bytes(), true, true));
  EXPECT_EQ(memory.bytes()[0], std::byte{7});
  next->leave(memory.bytes());
}

TEST_F(SharedPagesTest, PagesAreReplacedBesideTheirNeighbours) {
  const Pages memory(6);
  const auto all = pages_->enter(memory.bytes(), true, true);
  ASSERT_TRUE(all);
  const Bytes peer = peer_view(*all);
  pages_->replace(memory.part(2 * kPage, kPage), 1);
  std::ranges::fill(peer, std::byte{1});
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(memory.bytes()[i * kPage], i == 2 ? std::byte{0} : std::byte{1}) << i;
  pages_->leave(memory.bytes());
}

TEST_F(SharedPagesTest, NoStoreIsLostWhereThreadsWriteWhatIsReplaced) {
  constexpr std::size_t kPages = 512;
  const Pages memory(kPages);
  const auto shared = pages_->enter(memory.bytes(), true, true);
  ASSERT_TRUE(shared);
  std::atomic<bool> stop{false};
  std::uint64_t rounds = 0;
  std::thread writer([&] {
    while (!stop) {
      ++rounds;
      for (std::size_t i = 0; i < kPages; ++i)
        std::memcpy(memory.bytes().data() + i * kPage + 64, &rounds, sizeof rounds);
    }
  });
  pages_->replace(shared->pages, 1);
  stop = true;
  writer.join();
  for (std::size_t i = 0; i < kPages; ++i) {
    std::uint64_t found = 0;
    std::memcpy(&found, memory.bytes().data() + i * kPage + 64, sizeof found);
    ASSERT_EQ(found, rounds) << i;
  }
  pages_->leave(memory.bytes());
}

TEST_F(SharedPagesTest, WhatIsLeftOfAPartlyUnmappedRegionStays) {
  const Pages memory(16);
  std::ranges::fill(memory.bytes(), std::byte{6});
  ASSERT_TRUE(pages_->enter(memory.bytes(), true, true));
  ASSERT_EQ(::munmap(memory.bytes().data() + 8 * kPage, 8 * kPage), 0);
  pages_->leave(memory.bytes());
  static_cast<void>(pages_->enter(memory.part(0, 8 * kPage), true, true));
  EXPECT_TRUE(std::ranges::all_of(memory.part(0, 8 * kPage),
                                  [](std::byte one) { return one == std::byte{6}; }));
  pages_->leave(memory.part(0, 8 * kPage));
}

TEST_F(SharedPagesTest, WhatTheProgramMovedStays) {
  const Pages memory(4);
  const Pages elsewhere(4);
  std::ranges::fill(memory.bytes(), std::byte{6});
  ASSERT_TRUE(pages_->enter(memory.bytes(), true, true));
  std::byte* const from = memory.bytes().data();
  std::byte* const to = elsewhere.bytes().data();
  ASSERT_EQ(::mremap(from, 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
  pages_->leave(memory.bytes());
  ASSERT_EQ(::mmap(from, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0),
            from);
  ASSERT_TRUE(pages_->enter(memory.bytes(), true, true));
  EXPECT_EQ(elsewhere.bytes()[kPage], std::byte{6});
  EXPECT_EQ(memory.bytes()[kPage], std::byte{0});
  pages_->leave(memory.bytes());
}

TEST_F(SharedPagesTest, AMappingThatIsEnlargedGetsZeros) {
  const Pages memory(2);
  const Pages other(2);
  ASSERT_TRUE(pages_->enter(memory.bytes(), true, true));
  const auto next = pages_->enter(other.bytes(), true, true);
  ASSERT_TRUE(next);
  std::ranges::fill(other.bytes(), std::byte{6});
  void* const large = ::mremap(memory.bytes().data(), 2 * kPage, 4 * kPage, MREMAP_MAYMOVE);
  ASSERT_NE(large, MAP_FAILED);
  EXPECT_EQ(static_cast<std::byte*>(large)[2 * kPage], std::byte{0});
  pages_->leave(memory.bytes());
  pages_->leave(other.bytes());
  ::munmap(large, 4 * kPage);
}

TEST_F(SharedPagesTest, WithTooManyRegionsWhatIsSharedStaysSo) {
  const Pages memory(2);
  const auto shared = pages_->enter(memory.bytes(), true, true);
  ASSERT_TRUE(shared);
  for (std::size_t i = 0; i < SharedPages::kMostNoted; ++i)
    static_cast<void>(pages_->enter(memory.bytes(), false, false));
  pages_->leave(memory.bytes());  // which of them cannot be known
  peer_view(*shared)[0] = std::byte{9};
  EXPECT_EQ(memory.bytes()[0], std::byte{9});
}

TEST_F(SharedPagesTest, AForkedChildHasItsOwn) {
  const Pages memory(2);
  ASSERT_TRUE(pages_->enter(memory.bytes(), true, true));
  memory.bytes()[0] = std::byte{1};
  pages_->before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    pages_->after_fork_in_child();
    memory.bytes()[0] = std::byte{2};
    ::_exit(memory.bytes()[kPage] == std::byte{0} ? 0 : 1);
  }
  pages_->after_fork_in_parent();
  memory.bytes()[kPage] = std::byte{3};  // the child has its copy by now
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.bytes()[0], std::byte{1});
  pages_->leave(memory.bytes());
}

TEST_F(SharedPagesTest, AForkedChildHasItsOwnOfWhatIsLeft) {
  const Pages memory(8);
  ASSERT_TRUE(pages_->enter(memory.bytes(), true, true));
  std::byte* const at = memory.bytes().data();
  ASSERT_EQ(::munmap(at + 2 * kPage, kPage), 0);
  ASSERT_EQ(::mprotect(at + 4 * kPage, kPage, PROT_NONE), 0);
  pages_->before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    pages_->after_fork_in_child();
    ::mprotect(at + 4 * kPage, kPage, PROT_READ | PROT_WRITE);
    for (const std::size_t page : {0U, 1U, 3U, 4U, 7U}) at[page * kPage] = std::byte{2};
    ::_exit(0);
  }
  pages_->after_fork_in_parent();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(::mprotect(at + 4 * kPage, kPage, PROT_READ | PROT_WRITE), 0);
  for (const std::size_t page : {0U, 1U, 3U, 4U, 7U}) EXPECT_EQ(at[page * kPage], std::byte{0});
  pages_->leave(memory.bytes());
}

TEST_F(SharedPagesTest, AParentWaitsForItsChildsCopiesThroughSignals) {
  constexpr std::size_t kPages = 8192;
  const Pages memory(kPages);
  std::ranges::fill(memory.bytes(), std::byte{1});
  ASSERT_TRUE(pages_->enter(memory.bytes(), true, true));
  const auto before = ::signal(SIGALRM, [](int) {});
  pages_->before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    pages_->after_fork_in_child();
    ::_exit(memory.bytes()[(kPages - 1) * kPage] == std::byte{1} ? 0 : 1);
  }
  const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 500},
                        .it_value = {.tv_sec = 0, .tv_usec = 500}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  pages_->after_fork_in_parent();
  memory.bytes()[(kPages - 1) * kPage] = std::byte{2};
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::signal(SIGALRM, before);
  int status = -1;
  while (::waitpid(child, &status, 0) < 0) {}
  EXPECT_EQ(status, 0);
  pages_->leave(memory.bytes());
}

TEST_F(SharedPagesTest, FilesThatAPeerCouldShrinkAreNotMapped) {
  const auto plain = [] {
    return sys::OwnedFd(sys::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  };
  EXPECT_FALSE(PeerPages::open(ledger_, plain(), plain()));
}

TEST_F(SharedPagesTest, WhatAPeerClaimsBeyondItsFileIsNotMapped) {
  const Pages memory(1);
  const auto shared = pages_->enter(memory.bytes(), true, true);
  ASSERT_TRUE(shared);
  ASSERT_FALSE(peer_view(*shared).empty());
  PeerPlace place{.key = 5 << 8,
                  .home = MemoryHome::kWritable,
                  .stretch = std::uint64_t{1} << 60,
                  .stretch_length = kPage,
                  .into = 0,
                  .length = kPage};
  EXPECT_TRUE(peer_->at(place).empty());
  place.stretch = 0;
  place.stretch_length = std::uint64_t{1} << 60;
  EXPECT_TRUE(peer_->at(place).empty());
  place.stretch_length = SharedPages::kMostBytes + kPage;
  EXPECT_TRUE(peer_->at(place).empty());
  place.stretch_length = kPage;
  place.stretch = 17;
  EXPECT_TRUE(peer_->at(place).empty());
}

TEST(MemoryMap, TellsOfThisProcess) {
  const Pages memory(3);
  bool found = false;
  EXPECT_TRUE(visit_mappings([&](const Mapping& mapping) {
    const auto at = reinterpret_cast<std::uintptr_t>(memory.bytes().data());
    if (mapping.begin <= at && at + 3 * kPage <= mapping.end) {
      found = mapping.rights == "rw-p" && mapping.inode == 0;
    }
    return true;
  }));
  EXPECT_TRUE(found);
  testing::comes_to_be_alone();  // so that nobody goes between the two counts
  const unsigned before = count_threads();
  EXPECT_GE(before, 1U);
  std::thread([=] { EXPECT_EQ(count_threads(), before + 1); }).join();
}

}  // namespace
}  // namespace verbena::nic
