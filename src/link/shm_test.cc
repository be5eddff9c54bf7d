// SPDX-License-Identifier: Apache-2.0
#include "link/shm.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "link/icrc_check.h"
#include "link/testing.h"
#include "wire/packet.h"

namespace verbena::link {
namespace {

using testing::address;
using testing::OwnedTrain;

/// The link below: counts what it is given, and has one packet to be received when it is told so.
class Below final : public Link {
 public:
  std::size_t send(std::span<const wire::Train> trains, Time) override {
    sent += trains.size();
    return trains.size();
  }
  std::size_t receive(std::span<wire::Segment> segments, Time) override {
    ++looks;
    timeout = next_timeout;
    if (!std::exchange(has_packet, false)) return 0;
    segments[0] = {.datagram = packet};
    return 1;
  }
  [[nodiscard]] Time poll_timeout() const override { return timeout; }

  std::array<std::byte, kMinRingPacket> packet{};
  std::size_t sent = 0;
  int looks = 0;
  bool has_packet = false;
  Time timeout = kNever;
  Time next_timeout = kNever;  ///< from the next receive() on
};

/// A slot's link, with what a test looks at.
struct Slot {
  Slot() : channels(ShmChannels::create().value()) {
    auto made = std::make_unique<Below>();
    below = made.get();
    link = std::make_unique<ShmLink>(std::move(made), channels);
  }
  [[nodiscard]] bool is_woken() const {
    pollfd poll{.fd = channels->descriptor(), .events = POLLIN, .revents = 0};
    constexpr timespec kNoTime{.tv_sec = 0, .tv_nsec = 0};
    return sys::ppoll(&poll, 1, &kNoTime) > 0;
  }
  std::vector<std::vector<std::byte>> receive() {
    std::array<wire::Segment, 16> segments;
    std::vector<std::vector<std::byte>> all;
    while (const std::size_t count = link->receive(segments, now)) {
      for (const wire::Segment& segment : std::span(segments).first(count)) {
        all.emplace_back(segment.datagram.begin(), segment.datagram.end());
        last = segment;
      }
    }
    return all;
  }

  std::shared_ptr<ShmChannels> channels;
  Below* below = nullptr;
  std::unique_ptr<ShmLink> link;
  wire::Segment last{};
  Time now{};
};

class ShmLinkTest : public ::testing::Test {
 protected:
  explicit ShmLinkTest(pid_t b_fetches_from = 0, std::shared_ptr<FetchChoice> b_chooses = {}) {
    auto there = RingMemory::create().value();
    auto back = RingMemory::create().value();
    raw = RingMemory::open(there.descriptor.get()).value();
    std::array<int, 2> ends{};
    EXPECT_EQ(
        sys::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    for (std::size_t i = 0; i < 2; ++i) bells[i] = std::make_shared<sys::OwnedFd>(ends[i]);
    auto there_in = RingMemory::open(there.descriptor.get()).value();
    auto back_out = RingMemory::open(back.descriptor.get()).value();
    path.source = address("127.0.0.1");
    path.destination = address("127.0.0.2");
    path.channel = a.channels
                       ->open({.out = std::move(there.memory),
                               .in = std::move(back.memory),
                               .own = path.source,
                               .peer = path.destination,
                               .bell = bells[0]->get(),
                               .keep = bells[0]})
                       .value();
    number_at_b = b.channels
                      ->open({.out = std::move(back_out),
                              .in = std::move(there_in),
                              .own = path.destination,
                              .peer = path.source,
                              .bell = bells[1]->get(),
                              .keep = bells[1],
                              .fetch_from = b_fetches_from,
                              .choice = std::move(b_chooses)})
                      .value();
    EXPECT_TRUE(b.receive().empty());
  }
  std::size_t send(const OwnedTrain& train) {
    return a.link->send(std::span(&train.train(), 1), a.now);
  }
  /// The packets of a train as they lie in a ring.
  static std::vector<std::vector<std::byte>> packets_of(const wire::Train& train) {
    std::vector<std::vector<std::byte>> all;
    for (std::uint32_t i = 0; i < train.count; ++i) {
      const wire::TrainPacket packet = wire::packet_at(train, i);
      auto& bytes = all.emplace_back(packet.wire_size());
      wire::write_packet(train, packet, 0, bytes);
    }
    return all;
  }
  static void expect_equal(std::vector<std::vector<std::byte>> got,
                           std::vector<std::vector<std::byte>> wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i], wanted[i]) << i;
    }
  }

  Slot a;
  Slot b;
  RingMemory raw = RingMemory::create().value().memory;  ///< from a to b
  std::array<std::shared_ptr<sys::OwnedFd>, 2> bells;
  wire::Path path{};
  std::uint16_t number_at_b = 0;
};

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

/// `b` fetches: both are this process.
class LendingTest : public ShmLinkTest {
 protected:
  static constexpr std::uint32_t kSegment = ShmChannel::kLendFrom;
  explicit LendingTest(std::shared_ptr<FetchChoice> choice = {})
      : ShmLinkTest(sys::getpid(), std::move(choice)) {}

  /// A message of so many packets that lies in one piece.
  wire::Train message(std::uint32_t packets, wire::Opcode middle = wire::Opcode::kRcSendMiddle) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i / 251);
    piece = ConstBytes(bytes).first(packets * std::size_t{kSegment});
    wire::Train train;
    train.path = &path;
    train.head.bth.opcode = static_cast<wire::Opcode>(static_cast<std::uint8_t>(middle) - 1);
    train.middle_opcode = middle;
    train.last_opcode = static_cast<wire::Opcode>(static_cast<std::uint8_t>(middle) + 1);
    train.count = packets;
    train.segment_size = kSegment;
    train.payload_size = packets * kSegment;
    train.gather = std::span(&piece, 1);
    return train;
  }
  /// What comes at once; their payloads may have stayed.
  std::vector<wire::Segment> receive(const wire::Train& train) {
    EXPECT_EQ(a.link->send(std::span(&train, 1), a.now), 1U);
    std::vector<wire::Segment> segments(64);
    segments.resize(b.link->receive(segments, b.now));
    return segments;
  }
  static std::size_t lent(const std::vector<wire::Segment>& segments) {
    return static_cast<std::size_t>(std::ranges::count_if(
        segments, [](const wire::Segment& segment) { return segment.lent != 0; }));
  }
  /// Of all that was lent, how many payloads come.
  std::size_t fetch(const std::vector<wire::Segment>& segments) {
    std::vector<wire::Segment> those;
    for (const wire::Segment& segment : segments) {
      if (segment.lent != 0) those.push_back(segment);
    }
    return those.empty() ? 0 : those.front().lender->fetch(those, fetched.data());
  }

  std::vector<std::byte> bytes = std::vector<std::byte>(std::size_t{20} * kSegment);
  std::vector<std::byte> fetched = std::vector<std::byte>(std::size_t{20} * kSegment);
  ConstBytes piece;
};

TEST_F(LendingTest, TheMiddleOfAMessageStaysUntilItIsFetched) {
  EXPECT_TRUE(a.link->lends(path));
  const auto segments = receive(message(20));
  ASSERT_EQ(segments.size(), 20U);
  EXPECT_EQ(lent(segments), 18U);
  EXPECT_EQ(segments.front().lent + segments.back().lent, 0U);
  EXPECT_EQ(fetch(segments), 18U);
  const auto middle = ConstBytes(bytes).subspan(kSegment, std::size_t{18} * kSegment);
  EXPECT_TRUE(std::ranges::equal(middle, ConstBytes(fetched).first(middle.size())));
}

TEST_F(LendingTest, WhatLiesApartIsFetchedAllTheSame) {
  auto segments = receive(message(20));
  std::ranges::reverse(segments);  // no two payloads lie behind each other
  EXPECT_EQ(fetch(segments), 18U);
  for (std::size_t i = 0; i < 18; ++i) {
    EXPECT_TRUE(std::ranges::equal(ConstBytes(fetched).subspan(i * kSegment, kSegment),
                                   ConstBytes(bytes).subspan((18 - i) * kSegment, kSegment)))
        << i;
  }
}

TEST_F(LendingTest, OnlyWhatIsLongAndAcknowledgedAndInOnePieceIsLent) {
  EXPECT_EQ(lent(receive(message(4, wire::Opcode::kRcWriteMiddle))), 2U);
  EXPECT_EQ(lent(receive(message(4, wire::Opcode::kRcReadResponseMiddle))), 0U);
  EXPECT_EQ(lent(receive(message(4, wire::Opcode::kUcSendMiddle))), 0U);
  wire::Train train = message(4);
  train.segment_size = kSegment - 4;
  train.payload_size = 4 * train.segment_size;
  EXPECT_EQ(lent(receive(train)), 0U);
  train = message(3);
  const ConstBytes all = piece;
  const std::array halves{all.first(all.size() / 2), all.subspan(all.size() / 2)};
  train.gather = halves;
  EXPECT_EQ(lent(receive(train)), 0U);
}

TEST_F(LendingTest, WhatIsRecalledIsLostAndWhatComesBehindItIsNot) {
  const auto before = receive(message(6));
  a.link->recall(static_cast<std::uint16_t>(path.channel + 1));
  EXPECT_EQ(fetch(before), 4U) << "another channel's";
  a.link->recall(path.channel);
  EXPECT_EQ(fetch(before), 0U);
  EXPECT_EQ(fetch(receive(message(6))), 4U);
  const auto again = receive(message(6));
  a.link->recall(0);
  EXPECT_EQ(fetch(again), 0U);
}

TEST_F(LendingTest, AMemoryThatCannotBeReadIsCopiedFromThenOn) {
  const std::size_t size = std::size_t{4} * kSegment;
  void* const pages =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  wire::Train train = message(4);
  piece = ConstBytes(static_cast<std::byte*>(pages), size);
  auto segments = receive(train);
  ::munmap(static_cast<std::byte*>(pages) + 2 * kSegment, 2 * kSegment);
  EXPECT_EQ(fetch(segments), 1U) << "as far as it is there";
  EXPECT_FALSE(a.link->lends(path));
  EXPECT_EQ(fetch(segments), 0U);
  EXPECT_EQ(lent(receive(message(4))), 0U);
  ::munmap(pages, size);
}

/// `b` fetches when that is the faster, as a clock has it that the test sets.
class ChoosingTest : public LendingTest {
 protected:
  ChoosingTest() : ChoosingTest(std::make_shared<Time>()) {}
  /// What a message takes to be placed, once what lies in the ring is known to be.
  void take(Duration ring, Duration fetch) {
    const auto segments = receive(message(18));
    *clock_ += lent(segments) != 0 ? fetch : ring;
    EXPECT_EQ(b.link->receive(std::span(place_), b.now), 0U);
  }
  [[nodiscard]] bool lends() { return a.link->lends(path); }
  /// Behind how many of 60 messages the writer is to lend, once the reader has seen some.
  [[nodiscard]] int lends_of_60(Duration ring, Duration fetch) {
    for (int i = 0; i < 20; ++i) take(ring, fetch);
    int lent = 0;
    for (int i = 0; i < 60; ++i) {
      take(ring, fetch);
      lent += lends() ? 1 : 0;
    }
    return lent;
  }

 private:
  explicit ChoosingTest(std::shared_ptr<Time> the_clock)
      : LendingTest(std::make_shared<FetchChoice>(
            [the_clock] { return *the_clock; },
            FetchChoice::Sizes{.span = 1, .turning = 1, .first_pause = 1, .longest_pause = 1})),
        clock_(std::move(the_clock)) {}

  std::shared_ptr<Time> clock_;
  std::array<wire::Segment, 1> place_{};
};

TEST_F(ChoosingTest, TheWriterHearsWhatTheReaderChooses) {
  using std::chrono::microseconds;
  EXPECT_FALSE(lends());
  EXPECT_GT(lends_of_60(microseconds(450), microseconds(80)), 20);
  EXPECT_LT(lends_of_60(microseconds(40), microseconds(80)), 40);
}

TEST_F(ChoosingTest, WhatDoesNotFitIsLentAllTheSame) {
  EXPECT_FALSE(lends());
  const wire::Train train = message(18);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(a.link->send(std::span(&train, 1), a.now), 1U) << i;
  std::vector<wire::Segment> segments(6 * 18);
  segments.resize(b.link->receive(segments, b.now));
  EXPECT_EQ(segments.size(), 6U * 18U);
  EXPECT_GT(lent(segments), 18U);
  EXPECT_LT(lent(segments), 4U * 18U);
}

TEST_F(LendingTest, NothingComesFromAProcessThatIsGone) {
  const auto segments = receive(message(4));
  a.link.reset();
  a.channels.reset();
  bells[0].reset();
  EXPECT_EQ(fetch(segments), 0U) << "another process may have its number";
}

TEST_F(LendingTest, WhatIsNotInTheMiddleIsNotTakenForLent) {
  const wire::Train train = message(3);
  ASSERT_EQ(a.link->send(std::span(&train, 1), a.now), 1U);
  // Behind the record of the first packet, and 32 bytes of its own.
  const std::size_t first = 64 + (kSegment + wire::kIcrcSize + 63) / 64 * 64;
  std::byte& opcode = raw.bytes()[131072 + first + 32];
  ASSERT_EQ(opcode, static_cast<std::byte>(wire::Opcode::kRcSendMiddle));
  opcode = static_cast<std::byte>(wire::Opcode::kRcSendOnly);
  std::array<wire::Segment, 4> segments;
  EXPECT_EQ(b.link->receive(segments, b.now), 2U);
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
