// SPDX-License-Identifier: Apache-2.0
// READs of what a peer has to itself: nic/direct_paths.h by the kernel's copy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/types.h"
#include "link/fetch_choice.h"
#include "nic/test_direct_paths.h"

namespace verbena::nic {
namespace {

using engine::kRemoteWrite;
using testing::kKey;
using testing::kThere;
using testing::Paths;
using testing::Target;

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

}  // namespace
}  // namespace verbena::nic
