// SPDX-License-Identifier: Apache-2.0
//
// Channels that another process offers, or this one does not.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "nic/rendezvous.h"
#include "nic/same_host.h"
#include "nic/test_end.h"
#include "nic/test_host.h"

namespace verbena::nic {
namespace {

using testing::address;

class Offers : public ::testing::Test {
 protected:
  ChannelOffer offer() {
    ChannelOffer made{.pair = pair_, .from = sys::getpid()};
    for (int i = 0; i < 2; ++i)
      made.descriptors.push_back(std::move(link::RingMemory::create().value().descriptor));
    std::array<int, 2> ends{};
    EXPECT_EQ(
        sys::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    made.descriptors.emplace_back(ends[0]);
    other_ = sys::OwnedFd(ends[1]);
    return made;
  }

  ForkLedger ledger_;
  SameHost near_{ledger_};
  std::shared_ptr<link::ShmChannels> channels_ = link::ShmChannels::create().value();
  const SlotPair pair_{
      .own = address("127.77.30.8"), .peer = address("127.77.30.9"), .own_slot = 3, .peer_slot = 4};
  sys::OwnedFd other_;
};

TEST_F(Offers, AreTakenForSlotsOfOurs) {
  EXPECT_FALSE(near_.accept(offer()));
  near_.add(pair_.own, pair_.own_slot, channels_);
  EXPECT_TRUE(near_.accept(offer()));
  const wire::Path path{.source = pair_.own, .destination = pair_.peer};
  EXPECT_NE(near_.meet(path, pair_.own_slot, std::uint32_t{pair_.peer_slot} << 18), 0);
  // The peer has gone, and nobody is there in its place.
  other_.reset();
  EXPECT_EQ(near_.meet(path, pair_.own_slot, std::uint32_t{pair_.peer_slot} << 18), 0);
}

// Two that connect to each other at the same time offer a channel each.
TEST_F(Offers, AllOfThemGoWithWhoMadeThem) {
  near_.add(pair_.own, pair_.own_slot, channels_);
  testing::Network network;
  link::ShmLink link(std::make_unique<testing::MemoryLink>(
                         network, testing::Network::Place{pair_.own, pair_.own_slot}),
                     channels_);
  const wire::Path path{.source = pair_.own, .destination = pair_.peer};
  for (std::size_t i = 0; i < link::ShmChannels::kMost; ++i) {
    ASSERT_TRUE(near_.accept(offer())) << i;
    sys::OwnedFd first = std::move(other_);
    ASSERT_TRUE(near_.accept(offer())) << i;
    EXPECT_NE(near_.meet(path, pair_.own_slot, std::uint32_t{pair_.peer_slot} << 18), 0);
    first.reset();
    other_.reset();
    // The link hears of those that were closed when it looks.
    std::array<wire::Segment, 1> segments;
    EXPECT_EQ(link.receive(segments, {}), 0U);
  }
}

// Else the peer has half of a channel that nobody reads, and uses it until it hears that it was
// given up.
TEST_F(Offers, AreMadeToNobodyByASlotThatHasAllItMayHave) {
  near_.add(pair_.own, pair_.own_slot, channels_);
  const auto others = link::ShmChannels::create().value();
  near_.add(pair_.peer, pair_.peer_slot, others);
  std::vector<sys::OwnedFd> ends;
  const auto accept = [&](const SlotPair& pair) {
    ChannelOffer one = offer();
    one.pair = pair;
    one.pair.peer_slot = 5;
    ends.push_back(std::move(other_));
    return near_.accept(std::move(one)).has_value();
  };
  while (accept(pair_)) continue;
  ASSERT_TRUE(channels_->is_full());
  for (std::size_t i = 0; i < link::ShmChannels::kMost - 2; ++i)
    ASSERT_TRUE(accept(pair_.from_peer()));
  const auto there = listen_at(slot_name(pair_.peer, pair_.peer_slot)).value();
  const wire::Path path{.source = pair_.own, .destination = pair_.peer};
  EXPECT_EQ(near_.meet(path, pair_.own_slot, std::uint32_t{pair_.peer_slot} << 18), 0);
  EXPECT_TRUE(accept(pair_.from_peer())) << "its last place is free";
}

TEST_F(Offers, WhoDidNotMeetStaysApart) {
  near_.add(pair_.own, pair_.own_slot, channels_);
  // A process is there that takes no channel.
  const auto somebody = listen_at(slot_name(pair_.peer, pair_.peer_slot));
  ASSERT_TRUE(somebody);
  const wire::Path path{.source = pair_.own, .destination = pair_.peer};
  const std::uint32_t destination = std::uint32_t{pair_.peer_slot} << 18;
  EXPECT_EQ(near_.meet(path, pair_.own_slot, destination), 0);
  const auto refused = near_.accept(offer());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().condition, std::errc::connection_refused);
  EXPECT_EQ(near_.meet(path, pair_.own_slot, destination), 0);
  // Another process may have taken the slot since.
  auto another = offer();
  another.from += 1;
  EXPECT_TRUE(near_.accept(std::move(another)));
  EXPECT_NE(near_.meet(path, pair_.own_slot, destination), 0);
}

TEST_F(Offers, WithMemoryAreAnsweredWithOurs) {
  near_.share_memory([] { return 0U; });
  ASSERT_NE(near_.pages(), nullptr);
  const auto paths = near_.add(pair_.own, pair_.own_slot, channels_);
  ASSERT_NE(paths, nullptr);
  EXPECT_TRUE(near_.accept(offer())->empty());  // who offers none gets none
  const auto with_memory = [this] {
    auto made = offer();
    const auto [writable, readable] = near_.pages()->descriptors();
    made.descriptors.push_back(std::move(ReachWords::create().value().descriptor));
    made.descriptors.push_back(std::move(DirectBoard::create().value().descriptor));
    made.descriptors.emplace_back(sys::fcntl(writable, F_DUPFD_CLOEXEC));
    made.descriptors.emplace_back(sys::fcntl(readable, F_DUPFD_CLOEXEC));
    return made;
  };
  const auto answer = near_.accept(with_memory());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->size(), 3U);
  for (std::size_t i = 3; i < 7; ++i) {
    auto wrong = with_memory();
    wrong.descriptors[i] = sys::OwnedFd(sys::memfd_create("plain", MFD_CLOEXEC));
    const auto without = near_.accept(std::move(wrong));
    ASSERT_TRUE(without) << i;  // the channel is good
    EXPECT_TRUE(without->empty()) << i;
  }
}

TEST_F(Offers, OfABoardAloneAreAnsweredWithOurs) {
  const auto paths = near_.add(pair_.own, pair_.own_slot, channels_);
  ASSERT_NE(paths, nullptr) << "memory may be fetched";
  const auto with_board = [this] {
    auto made = offer();
    made.descriptors.push_back(std::move(ReachWords::create().value().descriptor));
    made.descriptors.push_back(std::move(DirectBoard::create().value().descriptor));
    return made;
  };
  const auto answer = near_.accept(with_board());
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->size(), 1U);
  EXPECT_TRUE(DirectBoard::open(answer->front().get()));
  auto wrong = with_board();
  wrong.descriptors[4] = sys::OwnedFd(sys::memfd_create("plain", MFD_CLOEXEC));
  const auto without = near_.accept(std::move(wrong));
  ASSERT_TRUE(without);
  EXPECT_TRUE(without->empty());
  auto words_alone = with_board();
  words_alone.descriptors.pop_back();
  EXPECT_FALSE(near_.accept(std::move(words_alone)));
}

TEST(SameHostMemory, IsNotOpenedWhereItIsNeitherSharedNorFetched) {
  ForkLedger ledger;
  SameHost near(ledger, Fetching::kNever);
  EXPECT_EQ(near.add(wire::Address::from_ipv4(0x7F4D1E40), 1, link::ShmChannels::create().value()),
            nullptr);
}

TEST_F(Offers, ThatAreNoneAreRefused) {
  near_.add(pair_.own, pair_.own_slot, channels_);
  auto few = offer();
  few.descriptors.pop_back();
  EXPECT_FALSE(near_.accept(std::move(few)));
  auto swapped = offer();
  std::swap(swapped.descriptors[0], swapped.descriptors[2]);
  EXPECT_FALSE(near_.accept(std::move(swapped)));
  auto no_ring = offer();
  no_ring.descriptors[1] = sys::OwnedFd(sys::memfd_create("ring", MFD_CLOEXEC));
  EXPECT_FALSE(near_.accept(std::move(no_ring)));
  auto stream = offer();
  stream.descriptors[2] = sys::OwnedFd(sys::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(near_.accept(std::move(stream)));
}

}  // namespace
}  // namespace verbena::nic
