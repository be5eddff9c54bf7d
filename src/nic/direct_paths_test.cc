// SPDX-License-Identifier: Apache-2.0
#include "nic/direct_paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "engine/types.h"

namespace verbena::nic {
namespace {

using engine::kRemoteWrite;
using Target = engine::DirectMemory::Target;

constexpr std::uint16_t kHere = 1;   ///< the owner's number for the channel
constexpr std::uint16_t kThere = 2;  ///< the peer's
constexpr std::uint32_t kKey = 0x305;

/// An owner and its peer, of one process: an offset is an address.
class Paths : public ::testing::Test {
 protected:
  Paths() {
    auto made = ReachWords::create().value();
    auto given = ReachWords::open(made.descriptor.get()).value();
    owner_.open(kHere, {.board = peer_.board(),
                        .words = std::make_unique<ReachWords>(std::move(made.words)),
                        .end = 0,
                        .own = at_owner_,
                        .peer = at_peer_,
                        .there = [this] { return there_; }});
    peer_.open(kThere, {.board = owner_.board(),
                        .words = std::make_unique<ReachWords>(std::move(given)),
                        .end = 1,
                        .own = at_peer_,
                        .peer = at_owner_,
                        .there = [this] { return there_; }});
    owner_.admit(admission_);
    owner_.settle(admission_.qp_number);
    owner_.publish({.key = kKey,
                    .pd = 7,
                    .access = kRemoteWrite,
                    .address = 0,
                    .memory = {.pages = memory_,
                               .offset = reinterpret_cast<std::uintptr_t>(memory_.data()),
                               .home = MemoryHome::kWritable}});
  }

  const wire::Address at_owner_ = wire::Address::from_ipv4(0x7F000001);
  const wire::Address at_peer_ = wire::Address::from_ipv4(0x7F000002);
  std::vector<std::byte> memory_ = std::vector<std::byte>(8192);
  bool there_ = true;
  const engine::DirectMemory::Admission admission_{.qp_number = 0x222,
                                                   .destination_qp = 0x111,
                                                   .channel = kHere,
                                                   .pd = 7,
                                                   .access = kRemoteWrite};
  DirectPaths owner_{DirectBoard::create().value().board};
  DirectPaths peer_{DirectBoard::create().value().board};
  const Target target_{.channel = kThere,
                       .qp_number = 0x111,
                       .destination_qp = 0x222,
                       .key = kKey,
                       .address = 16,
                       .length = 32,
                       .access = kRemoteWrite};
  Time now_{};
};

TEST_F(Paths, LeadToThePeersMemory) {
  const Bytes bytes = peer_.reach(target_);
  EXPECT_EQ(bytes.data(), memory_.data() + 16);
  EXPECT_EQ(bytes.size(), 32U);
  static_cast<void>(peer_.leave(kThere, now_));
  Target elsewhere = target_;
  elsewhere.channel = 7;
  EXPECT_TRUE(peer_.reach(elsewhere).empty());
}

TEST_F(Paths, WhatWasReachedBeforeIsReachedWhereItIsNow) {
  const auto reached = [this](const Target& target) {
    const Bytes bytes = peer_.reach(target);
    if (!bytes.empty()) static_cast<void>(peer_.leave(kThere, now_));
    return bytes.data();
  };
  ASSERT_EQ(reached(target_), memory_.data() + 16);
  Target next = target_;
  next.address = memory_.size() - next.length;
  EXPECT_EQ(reached(next), memory_.data() + next.address);
  ++next.address;
  EXPECT_EQ(reached(next), nullptr) << "beyond its end";
  Target read = target_;
  read.access = engine::kRemoteRead;
  EXPECT_EQ(reached(read), nullptr);
  Target other = target_;
  other.qp_number = 0x112;
  EXPECT_EQ(reached(other), nullptr);

  ASSERT_EQ(reached(target_), memory_.data() + 16);
  owner_.withdraw(kKey);
  EXPECT_EQ(reached(target_), nullptr);
  std::vector<std::byte> elsewhere(4096);
  owner_.publish({.key = kKey,
                  .pd = 7,
                  .access = kRemoteWrite,
                  .address = 0,
                  .memory = {.pages = elsewhere,
                             .offset = reinterpret_cast<std::uintptr_t>(elsewhere.data()),
                             .home = MemoryHome::kWritable}});
  EXPECT_EQ(reached(target_), elsewhere.data() + 16);
  owner_.withdraw(kKey);
  owner_.publish({.key = kKey,
                  .pd = 7,
                  .access = kRemoteWrite,
                  .address = 0,
                  .memory = {.pages = memory_,
                             .offset = reinterpret_cast<std::uintptr_t>(memory_.data()),
                             .home = MemoryHome::kWritable}});
  EXPECT_EQ(reached(target_), memory_.data() + 16) << "nobody looked in between";
}

TEST_F(Paths, WhatWasReachedBeforeIsClosedWithWhatOpensIt) {
  const auto reached = [this] {
    const bool found = !peer_.reach(target_).empty();
    if (found) static_cast<void>(peer_.leave(kThere, now_));
    return found;
  };
  ASSERT_TRUE(reached());
  owner_.set_up(false);
  EXPECT_FALSE(reached());
  owner_.set_up(true);
  ASSERT_TRUE(reached());
  engine::DirectMemory::Admission none = admission_;
  none.access = 0;
  owner_.admit(none);
  owner_.settle(none.qp_number);
  EXPECT_FALSE(reached());
  owner_.admit(admission_);
  owner_.settle(admission_.qp_number);
  EXPECT_TRUE(reached());
}

/// Two files that a peer may map, as nic/shared_pages.h makes them.
sys::OwnedFd sealed_pages() {
  sys::OwnedFd fd(sys::memfd_create("pages", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(sys::ftruncate(fd.get(), 8192), 0);
  EXPECT_EQ(sys::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  return fd;
}

TEST_F(Paths, AStretchWhoseMappingMadeWayIsMappedAgain) {
  ForkLedger ledger;
  DirectPaths maps{DirectBoard::create().value().board};
  maps.open(kThere, {.board = owner_.board(),
                     .pages = std::make_unique<PeerPages>(
                         PeerPages::open(ledger, sealed_pages(), sealed_pages()).value()),
                     .own = at_peer_,
                     .peer = at_owner_,
                     .there = [] { return true; }});
  // Of one mapping's place, and of the second nothing can be mapped.
  const auto publish = [this](std::uint32_t key, std::uint64_t offset) {
    owner_.publish({.key = key,
                    .pd = 7,
                    .access = kRemoteWrite,
                    .address = 0,
                    .memory = {.pages = Bytes(memory_).first(4096),
                               .offset = offset,
                               .home = MemoryHome::kWritable}});
  };
  constexpr std::uint32_t kOther = kKey + (64U << 8);
  owner_.withdraw(kKey);
  publish(kKey, 0);
  publish(kOther, 1);
  const Bytes before = maps.reach(target_);
  ASSERT_FALSE(before.empty());
  before.front() = std::byte{1};
  static_cast<void>(maps.leave(kThere, now_));
  Target other = target_;
  other.key = kOther;
  EXPECT_TRUE(maps.reach(other).empty());
  const Bytes after = maps.reach(target_);
  ASSERT_FALSE(after.empty());
  EXPECT_EQ(after.front(), std::byte{1});
  static_cast<void>(maps.leave(kThere, now_));
}

TEST_F(Paths, AreClosedWhereThePeerIsGone) {
  ASSERT_FALSE(peer_.reach(target_).empty());
  EXPECT_TRUE(peer_.leave(kThere, now_));
  there_ = false;  // which is not asked each time
  ASSERT_FALSE(peer_.reach(target_).empty());
  EXPECT_TRUE(peer_.leave(kThere, now_));
  ASSERT_FALSE(peer_.reach(target_).empty());
  EXPECT_FALSE(peer_.leave(kThere, now_ + DirectPaths::kLooks));
  EXPECT_TRUE(peer_.reach(target_).empty());
  there_ = true;
  EXPECT_TRUE(peer_.reach(target_).empty());
}

TEST_F(Paths, ThatWereClosedLeadNowhere) {
  peer_.close(kThere);
  EXPECT_TRUE(peer_.reach(target_).empty());
}

TEST_F(Paths, LeadNowhereWhileAPortIsDown) {
  peer_.set_up(false);
  EXPECT_TRUE(peer_.reach(target_).empty());
  peer_.set_up(true);
  owner_.set_up(false);
  EXPECT_TRUE(peer_.reach(target_).empty());
  owner_.set_up(true);
  EXPECT_FALSE(peer_.reach(target_).empty());
  static_cast<void>(peer_.leave(kThere, now_));
}

TEST_F(Paths, WhatIsTakenAwayWaitsForWhoUsesIt) {
  std::atomic<bool> inside{true};
  ASSERT_FALSE(peer_.reach(target_).empty());
  std::thread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    inside = false;
    static_cast<void>(peer_.leave(kThere, now_));
  });
  owner_.withdraw(kKey);
  EXPECT_FALSE(inside);
  leaves.join();
  EXPECT_FALSE(owner_.gives_up());
  EXPECT_TRUE(peer_.reach(target_).empty());
}

TEST_F(Paths, WhoStaysInsideIsLeftBehind) {
  ASSERT_FALSE(peer_.reach(target_).empty());
  owner_.withdraw(kKey);  // the peer is stopped
  ASSERT_TRUE(owner_.gives_up());
  const auto pages = owner_.take_given_up();
  ASSERT_EQ(pages.size(), 1U);
  EXPECT_EQ(pages.front().data(), memory_.data());
  EXPECT_FALSE(owner_.gives_up());
  static_cast<void>(peer_.leave(kThere, now_));
  // It goes on, and is to use packets.
  owner_.publish({.key = kKey + 256,
                  .pd = 7,
                  .access = kRemoteWrite,
                  .address = 0,
                  .memory = {.pages = memory_,
                             .offset = reinterpret_cast<std::uintptr_t>(memory_.data()),
                             .home = MemoryHome::kWritable}});
  Target next = target_;
  next.key = kKey + 256;
  EXPECT_TRUE(peer_.reach(next).empty());
}

TEST_F(Paths, AQueuePairIsSettledWhenNobodyUsesIt) {
  ASSERT_FALSE(peer_.reach(target_).empty());
  owner_.settle(0x223);  // another one
  owner_.settle(0x222);  // which admits what it did
  EXPECT_FALSE(owner_.gives_up());
  owner_.admit({.qp_number = 0x222});
  owner_.settle(0x222);
  EXPECT_TRUE(owner_.gives_up());
}

TEST_F(Paths, WhatIsAdmittedAlreadyIsNotWaitedFor) {
  ASSERT_FALSE(peer_.reach(target_).empty());
  owner_.admit(admission_);
  owner_.settle(0x222);
  EXPECT_FALSE(owner_.gives_up());
  static_cast<void>(peer_.leave(kThere, now_));
  ASSERT_FALSE(peer_.reach(target_).empty());
  static_cast<void>(peer_.leave(kThere, now_));
}

TEST_F(Paths, OtherRightsHoldWhenNobodyUsesTheOldOnes) {
  auto less = admission_;
  less.access = engine::kRemoteRead;
  owner_.admit(less);
  EXPECT_TRUE(peer_.reach(target_).empty());
  owner_.settle(0x222);
  EXPECT_TRUE(peer_.reach(target_).empty());
  owner_.admit(admission_);
  owner_.settle(0x222);
  EXPECT_FALSE(peer_.reach(target_).empty());
  static_cast<void>(peer_.leave(kThere, now_));
}

TEST_F(Paths, WhoHasDiedInsideTouchesNothing) {
  ASSERT_FALSE(peer_.reach(target_).empty());
  there_ = false;
  owner_.withdraw(kKey);
  EXPECT_FALSE(owner_.gives_up());
}

/// The owner's memory is its own, and the kernel copies it.
class Fetches : public Paths {
 protected:
  Fetches() {
    owner_.withdraw(kKey);
    auto reads = admission_;
    reads.access = engine::kRemoteRead;
    owner_.admit(reads);
    owner_.settle(reads.qp_number);
    publish(kKey, memory_.data());
    open(true);
    target_.access = engine::kRemoteRead;
    std::ranges::fill(memory_, std::byte{5});
  }
  void publish(std::uint32_t key, std::byte* at) {
    owner_.publish({.key = key,
                    .pd = 7,
                    .access = engine::kRemoteRead,
                    .address = 0,
                    .memory = {.pages = memory_,
                               .offset = reinterpret_cast<std::uintptr_t>(at),
                               .home = MemoryHome::kOwner}});
  }
  void open(bool fetches) {
    DirectPath path{.board = owner_.board(), .own = at_peer_, .peer = at_owner_};
    path.pages = std::make_unique<PeerPages>();
    path.there = [this] { return there_; };
    path.most_fetched = most_;
    path.choice = choice_;
    if (fetches) {
      path.fetch = [this](std::uint64_t address, std::span<const Bytes> to) {
        meanwhile_();
        std::memcpy(to[0].data(), reinterpret_cast<const std::byte*>(address), to[0].size());
        return outcome_;
      };
    }
    peer_.open(kThere, std::move(path));
  }
  bool fetch() {
    const Bytes to(got_);
    return peer_.fetch(target_, std::span(&to, 1));
  }

  Target target_ = Paths::target_;
  std::vector<std::byte> got_ = std::vector<std::byte>(32);
  std::function<void()> meanwhile_ = [] {};
  Fetched outcome_ = Fetched::kAll;
  std::uint64_t most_ = 1 << 20;
  std::shared_ptr<link::FetchChoice> choice_{};
  Time now_{};
};

TEST_F(Fetches, WhatItsOwnerHasToItself) {
  EXPECT_TRUE(peer_.reach(target_).empty());
  EXPECT_TRUE(fetch());
  EXPECT_EQ(std::ranges::count(got_, std::byte{5}), 32);
  target_.address = memory_.size() - 16;
  EXPECT_FALSE(fetch()) << "beyond its end";
}

TEST_F(Fetches, NothingThatIsTooLong) {
  most_ = 31;
  open(true);
  EXPECT_FALSE(fetch());
  EXPECT_TRUE(peer_.offers(kThere, engine::kRemoteRead, 31));
  EXPECT_FALSE(peer_.offers(kThere, engine::kRemoteRead, 32));
  most_ = 32;
  open(true);
  EXPECT_TRUE(fetch());
}

TEST_F(Fetches, OnlyToRead) {
  EXPECT_TRUE(peer_.offers(kThere, engine::kRemoteRead, 32));
  EXPECT_FALSE(peer_.offers(kThere, kRemoteWrite, 32));
  open(false);
  EXPECT_FALSE(peer_.offers(kThere, engine::kRemoteRead, 32));
  EXPECT_FALSE(fetch());
}

TEST_F(Fetches, NothingOfWhoIsNotFetchedFrom) {
  const OpenRegion region{.key = kKey + 1,
                          .memory = {.pages = memory_, .home = MemoryHome::kOwner}};
  const DirectPaths closed(DirectBoard::create().value().board, false);
  EXPECT_FALSE(closed.takes(region));
  EXPECT_FALSE(owner_.takes(region)) << "its place is taken";
  owner_.withdraw(kKey);
  EXPECT_TRUE(owner_.takes(region));
}

TEST_F(Fetches, NothingWhereThePortIsDownOrThePeerIsGone) {
  peer_.set_up(false);
  EXPECT_FALSE(peer_.offers(kThere, engine::kRemoteRead, 32));
  EXPECT_FALSE(fetch());
  peer_.set_up(true);
  owner_.set_up(false);
  EXPECT_FALSE(fetch());
  owner_.set_up(true);
  there_ = false;
  EXPECT_FALSE(fetch());
  there_ = true;
  EXPECT_TRUE(fetch());
}

TEST_F(Fetches, WhatIsLongWhileThatIsChosen) {
  most_ = 16;
  choice_ = std::make_shared<link::FetchChoice>(
      [this] { return now_; }, link::FetchChoice::Sizes{.span = 1, .turning = 1, .first_pause = 1});
  open(true);
  EXPECT_TRUE(peer_.offers(kThere, engine::kRemoteRead, 16));
  EXPECT_FALSE(peer_.offers(kThere, engine::kRemoteRead, 32));
  EXPECT_FALSE(fetch());
  while (!choice_->fetches()) {
    choice_->begin(link::FetchChoice::Way::kRing, 1 << 20, false);
    choice_->end();
  }
  EXPECT_EQ(peer_.fetch_turn(kThere, 32), 1U);
  EXPECT_EQ(peer_.fetch_turn(kThere, 16), 0U) << "is always fetched";
  EXPECT_TRUE(peer_.offers(kThere, engine::kRemoteRead, 32));
  EXPECT_TRUE(fetch());
}

TEST_F(Fetches, NoMoreWhereTheKernelRefuses) {
  outcome_ = Fetched::kMissing;
  EXPECT_FALSE(fetch());
  EXPECT_TRUE(peer_.offers(kThere, engine::kRemoteRead, 32)) << "the next one may be there";
  outcome_ = Fetched::kRefused;
  EXPECT_FALSE(fetch());
  EXPECT_FALSE(peer_.offers(kThere, engine::kRemoteRead, 32));
}

TEST_F(Fetches, WhatIsTakenAwayMeanwhileIsNothing) {
  meanwhile_ = [this] { owner_.withdraw(kKey); };
  EXPECT_FALSE(fetch());
  meanwhile_ = [] {};
  publish(kKey + 256, memory_.data());
  target_.key = kKey + 256;
  EXPECT_TRUE(fetch());
  meanwhile_ = [this] {
    owner_.withdraw(kKey + 256);
    publish(kKey + 256, memory_.data() + 64);
  };
  EXPECT_FALSE(fetch()) << "elsewhere";
  meanwhile_ = [this] {
    owner_.withdraw(kKey + 256);
    publish(kKey + 256, memory_.data() + 64);
  };
  EXPECT_FALSE(fetch()) << "closed for a moment";
  meanwhile_ = [this] {
    owner_.set_up(false);
    owner_.set_up(true);
  };
  EXPECT_FALSE(fetch()) << "the port was down";
  meanwhile_ = [this] {
    owner_.admit({.qp_number = 0x222});
    owner_.settle(0x222);
    auto again = admission_;
    again.access = engine::kRemoteRead;
    owner_.admit(again);
    owner_.settle(0x222);
  };
  EXPECT_FALSE(fetch()) << "of a queue pair that has ended and begun again";
  meanwhile_ = [] {};
  EXPECT_TRUE(fetch());
  meanwhile_ = [this] {
    owner_.admit({.qp_number = 0x222});
    owner_.settle(0x222);
  };
  EXPECT_FALSE(fetch()) << "of a queue pair that has ended";
}

TEST_F(Fetches, NothingThatIsShared) {
  owner_.withdraw(kKey);
  owner_.publish({.key = kKey,
                  .pd = 7,
                  .access = engine::kRemoteRead,
                  .address = 0,
                  .memory = {.pages = memory_, .home = MemoryHome::kReadable}});
  EXPECT_FALSE(fetch());
}

TEST_F(Paths, MemoryOfItsOwnersIsNotReached) {
  owner_.withdraw(kKey);
  auto admission = admission_;
  admission.access = engine::kRemoteRead;
  owner_.admit(admission);
  owner_.settle(admission.qp_number);
  owner_.publish({.key = kKey,
                  .pd = 7,
                  .access = engine::kRemoteRead,
                  .address = 0,
                  .memory = {.pages = memory_,
                             .offset = reinterpret_cast<std::uintptr_t>(memory_.data()),
                             .home = MemoryHome::kOwner}});
  Target target = target_;
  target.access = engine::kRemoteRead;
  EXPECT_TRUE(peer_.offers(kThere, engine::kRemoteRead, 32));
  EXPECT_TRUE(peer_.reach(target).empty());
}

TEST(ReachWordsTest, WhatIsNoneIsNotOpened) {
  EXPECT_FALSE(ReachWords::open(-1));
  const sys::OwnedFd plain(sys::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(sys::ftruncate(plain.get(), 4096), 0);
  EXPECT_FALSE(ReachWords::open(plain.get()));  // its maker can cut it short
}

}  // namespace
}  // namespace verbena::nic
