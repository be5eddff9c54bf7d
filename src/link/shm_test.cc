// SPDX-License-Identifier: Apache-2.0
#include "link/shm.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <vector>

#include "link/icrc_check.h"
#include "link/test_shm.h"

namespace verbena::link {
namespace {

using testing::OwnedTrain;
using testing::ShmLinkTest;

TEST_F(ShmLinkTest, TrainsArriveAsTheyWouldByTheNetwork) {
  path.traffic_class = 0x6A;
  path.hop_limit = 17;
  for (const std::size_t size : {0U, 1U, 63U, 1024U, 5000U, 40'000U}) {
    const OwnedTrain train(path, 0x123456, 7, size, 1024);
    ASSERT_EQ(send(train), 1U);
    expect_equal(b.receive(), packets_of(train.train()));
    EXPECT_TRUE(b.last.undamaged);
    EXPECT_EQ(b.last.path.source, path.source);
    EXPECT_EQ(b.last.path.destination, path.destination);
    EXPECT_EQ(b.last.path.traffic_class, 0x6A);
    EXPECT_EQ(b.last.path.hop_limit, 17);
    EXPECT_TRUE(IcrcCheck(IcrcCheck::Mode::kStrict).holds(b.last));
  }
  EXPECT_EQ(a.below->sent, 0U);
}

class ShortSendTest : public ShmLinkTest {
 protected:
  [[nodiscard]] wire::ShortSend message(std::size_t size) {
    data_.assign(size, std::byte{7});
    return {.path = &path,
            .destination_qp = 0x123456,
            .psn = 9,
            .piggyback = wire::piggyback(3),
            .solicited = true,
            .payload = data_};
  }
  std::vector<std::byte> data_;
};

TEST_F(ShortSendTest, ArrivesAsItsTrainWould) {
  path.traffic_class = 0x6A;
  path.hop_limit = 17;
  for (const std::size_t size : {0U, 1U, 64U, 4000U, 4096U}) {
    const wire::ShortSend sent = message(size);
    ASSERT_TRUE(a.link->send_short(sent));
    expect_equal(b.receive(), packets_of(wire::train_of(sent)));
    EXPECT_EQ(b.last.path.traffic_class, 0x6A);
    EXPECT_EQ(b.last.path.hop_limit, 17);
  }
  EXPECT_EQ(a.below->sent, 0U);
}

TEST_F(ShortSendTest, TakesAnotherWayWhereThereIsNoChannel) {
  path.channel = 0;
  EXPECT_FALSE(a.link->send_short(message(64)));
  path.channel = 77;
  EXPECT_FALSE(a.link->send_short(message(64)));
}

TEST_F(ShortSendTest, TakesAnotherWayWhereThereIsNoRoom) {
  std::size_t sent = 0;
  while (a.link->send_short(message(4000))) sent += 4000;
  EXPECT_GT(sent, kRingSize / 2);
  EXPECT_LT(sent, kRingSize);
  EXPECT_EQ(b.receive().size(), sent / 4000);
  EXPECT_TRUE(a.link->send_short(message(4000)));
}

TEST_F(ShortSendTest, WakesWhoSleeps) {
  EXPECT_TRUE(b.link->arm());
  ASSERT_TRUE(a.link->send_short(message(64)));
  EXPECT_TRUE(b.is_woken());
}

TEST_F(ShmLinkTest, WhatNamesNoChannelGoesBelow) {
  const OwnedTrain near(path, 1, 1, 100, 1024);
  wire::Path network = path;
  network.channel = 0;
  const OwnedTrain far(network, 1, 2, 100, 1024);
  const std::array trains{far.train(), near.train(), far.train(), far.train()};
  EXPECT_EQ(a.link->send(trains, a.now), 4U);
  EXPECT_EQ(a.below->sent, 3U);
  EXPECT_EQ(b.receive().size(), 1U);
}

TEST_F(ShmLinkTest, WhatDoesNotFitGoesOnWhereItStopped) {
  const OwnedTrain train(path, 9, 1, 3 * kRingSize / 2, 4096);
  std::vector<std::vector<std::byte>> got;
  int sends = 0;
  while (send(train) == 0) {
    ++sends;
    for (auto& packet : b.receive()) got.push_back(std::move(packet));
  }
  for (auto& packet : b.receive()) got.push_back(std::move(packet));
  EXPECT_GE(sends, 1);
  expect_equal(got, packets_of(train.train()));
}

TEST_F(ShmLinkTest, WhatIsGivenUpAndComesAgainShorterBeginsAnew) {
  const OwnedTrain whole(path, 9, 1, 3 * kRingSize / 2, 4096);
  ASSERT_EQ(send(whole), 0U);
  EXPECT_FALSE(b.receive().empty());
  const OwnedTrain part(path, 9, 1, 8192, 4096);
  ASSERT_EQ(send(part), 1U);
  expect_equal(b.receive(), packets_of(part.train()));
}

TEST_F(ShmLinkTest, HalfOfARingIsForWhatNobodyAsksForAgain) {
  constexpr std::size_t kPart = 64 << 10;
  std::size_t given = 0;
  while (a.link->has_room(path, kPart, a.now)) given += kPart;
  EXPECT_EQ(given, kRingSize / 2);  // what was given counts before it is sent
  const OwnedTrain train(path, 0x123456, 7, 40'000, 8192);
  EXPECT_EQ(send(train), 1U);
  EXPECT_TRUE(a.link->has_room(path, kPart, a.now));
  while (a.link->has_room(path, kPart, a.now)) EXPECT_EQ(send(train), 1U);
  EXPECT_EQ(send(train), 1U);  // what keeps within windows has the other half
  EXPECT_FALSE(b.receive().empty());
  EXPECT_TRUE(b.receive().empty());  // gives the room back
  EXPECT_TRUE(a.link->has_room(path, kPart, a.now));
}

TEST_F(ShmLinkTest, NobodyWaitsForAReaderThatStands) {
  constexpr std::size_t kMost = kRingSize / 2;
  EXPECT_TRUE(a.link->has_room(path, kMost, a.now));
  EXPECT_FALSE(a.link->has_room(path, 1, a.now));
  EXPECT_FALSE(a.link->has_room(path, 1, a.now + std::chrono::milliseconds(999)));
  EXPECT_TRUE(a.link->has_room(path, 1, a.now + std::chrono::milliseconds(1001)));
  EXPECT_EQ(send(OwnedTrain(path, 0x123456, 7, 100, 1024)), 1U);
  EXPECT_TRUE(a.link->has_room(path, 1, a.now));
  EXPECT_FALSE(a.link->has_room(path, kMost, a.now));  // waits anew
  path.channel = 99;
  EXPECT_TRUE(a.link->has_room(path, kMost, a.now));  // lost either way
}

TEST_F(ShmLinkTest, WhoSleepsIsWokenOnce) {
  const OwnedTrain train(path, 1, 1, 10, 1024);
  // At first it has not looked yet.
  EXPECT_TRUE(b.link->arm());
  EXPECT_FALSE(b.is_woken());
  ASSERT_EQ(send(train), 1U);
  EXPECT_TRUE(b.is_woken());
  EXPECT_EQ(b.receive().size(), 1U);
  EXPECT_TRUE(b.is_woken()) << "whoever sleeps is another thread than who polls";
  ASSERT_EQ(send(train), 1U);
  EXPECT_FALSE(b.link->arm()) << "something has come";
  EXPECT_FALSE(b.is_woken());
  // Who polls is not.
  ASSERT_EQ(send(train), 1U);
  EXPECT_FALSE(b.is_woken());
  EXPECT_FALSE(b.link->arm());
  EXPECT_EQ(b.receive().size(), 2U);
  EXPECT_TRUE(b.link->arm());
}

TEST_F(ShmLinkTest, TheLinkBelowIsLookedAtNowAndThen) {
  const OwnedTrain train(path, 1, 1, 10, 1024);
  std::array<wire::Segment, 4> segments;
  b.below->looks = 0;
  int packets = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(send(train), 1U);
    b.now += std::chrono::microseconds(1);
    packets += static_cast<int>(b.link->receive(segments, b.now));
  }
  EXPECT_EQ(packets, 1000);
  EXPECT_GE(b.below->looks, 40);
  EXPECT_LE(b.below->looks, 60);
  // When nothing came for a while, each time.
  b.now += std::chrono::milliseconds(1);
  b.below->has_packet = true;
  EXPECT_EQ(b.link->receive(segments, b.now), 1U);
}

TEST_F(ShmLinkTest, TheLinkBelowTellsWhenItIsToBeAsked) {
  EXPECT_EQ(b.link->poll_timeout(), kNever);
  b.below->next_timeout = Time::min();
  EXPECT_TRUE(b.receive().empty());
  EXPECT_EQ(b.link->poll_timeout(), Time::min());
  b.below->next_timeout = kNever;
  EXPECT_TRUE(b.receive().empty());
  EXPECT_EQ(b.link->poll_timeout(), kNever);
}

TEST_F(ShmLinkTest, ABrokenRingLosesWhatIsSent) {
  const OwnedTrain train(path, 1, 1, 10, 1024);
  std::memset(raw.bytes().data(), 0x5A, 131072 + 64);
  const std::uint64_t mark = raw.mark_at(0);
  std::memcpy(raw.bytes().data() + 131072, &mark, sizeof mark);
  EXPECT_TRUE(b.receive().empty());
  for (std::size_t i = 0; i < 2 * kRingSize / 64; ++i) ASSERT_EQ(send(train), 1U);
  EXPECT_TRUE(b.receive().empty());
  EXPECT_TRUE(b.link->arm());
}

TEST_F(ShmLinkTest, AClosedChannelLosesWhatIsSentAndItsNumberIsGivenAgain) {
  a.channels->close(path.channel);
  const OwnedTrain train(path, 1, 1, 10, 1024);
  EXPECT_EQ(send(train), 1U);
  EXPECT_TRUE(b.receive().empty());
  auto made = RingMemory::create().value();
  const auto again = a.channels->open({.out = std::move(made.memory),
                                       .in = RingMemory::create().value().memory,
                                       .bell = bells[0]->get()});
  EXPECT_EQ(again.value(), path.channel);
}

TEST_F(ShmLinkTest, WhoIsGoneWakesNobodyForEver) {
  EXPECT_TRUE(b.link->arm());
  a.link.reset();
  a.channels.reset();
  bells[0].reset();
  EXPECT_TRUE(b.is_woken());
  EXPECT_TRUE(b.receive().empty());
  EXPECT_TRUE(b.link->arm());
  EXPECT_FALSE(b.is_woken());
}
TEST_F(ShmLinkTest, ChannelsAreBounded) {
  std::size_t opened = 0;
  for (; opened <= ShmChannels::kMost; ++opened) {
    auto made = RingMemory::create().value();
    // A socket can be watched once.
    std::array<int, 2> ends{};
    ASSERT_EQ(sys::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    const sys::OwnedFd other(ends[1]);
    auto bell = std::make_shared<sys::OwnedFd>(ends[0]);
    if (!a.channels->open({.out = std::move(made.memory),
                           .in = RingMemory::create().value().memory,
                           .bell = bell->get(),
                           .keep = bell}))
      break;
  }
  EXPECT_EQ(opened, ShmChannels::kMost - 2);
  EXPECT_TRUE(a.channels->is_full());
}

}  // namespace
}  // namespace verbena::link
