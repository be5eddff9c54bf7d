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
#include "nic/test_direct_paths.h"

namespace verbena::nic {
namespace {

using engine::kRemoteWrite;
using testing::kHere;
using testing::kKey;
using testing::kThere;
using testing::Paths;
using testing::Target;

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
  open_to_writes(kKey, elsewhere);
  EXPECT_EQ(reached(target_), elsewhere.data() + 16);
  owner_.withdraw(kKey);
  open_to_writes(kKey, memory_);
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
  open_to_writes(kKey + 256, memory_);
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
