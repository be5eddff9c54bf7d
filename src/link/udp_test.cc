// SPDX-License-Identifier: Apache-2.0
#include "link/udp.h"

#include <gtest/gtest.h>
#include <netinet/udp.h>

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "base/test_faults.h"
#include "link/icrc_check.h"
#include "link/testing.h"

namespace verbena::link {
namespace {

using testing::address;
using testing::connected_socket;
using testing::OwnedTrain;

constexpr Time kNow{};

/// Everything that has come, with storage of its own. Loopback delivers within the send, so what
/// was sent is there.
std::vector<wire::Segment> receive_all(Link& link) {
  static std::deque<std::vector<std::byte>> storage;
  std::vector<wire::Segment> all;
  std::array<wire::Segment, 256> some;
  while (const std::size_t count = link.receive(some, kNow)) {
    for (wire::Segment& segment : std::span(some).first(count)) {
      storage.emplace_back(segment.datagram.begin(), segment.datagram.end());
      segment.datagram = storage.back();
      all.push_back(segment);
    }
  }
  return all;
}

constexpr const char* kNotTold = "this kernel does not tell how it numbers packets";

class UdpLinkTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const bool ipv6 = GetParam();
    if (ipv6 && !open_udp_socket(address("::1"), 0, Sharing::kExclusive))
      GTEST_SKIP() << "no IPv6 on this machine";
    // IPv6 has one loopback address: the link sends to itself.
    sender_ = testing::open_udp_link(address(ipv6 ? "::1" : "127.77.1.1"));
    if (!ipv6) other_ = testing::open_udp_link(address("127.77.1.2"));
    path_.source = sender_->address();
    path_.destination = receiver().address();
    path_.source_port = 4791;
  }
  UdpLink& receiver() { return other_ ? *other_ : *sender_; }
  /// Has the sender connect sockets to whom it sends often.
  void connect_often() {
    const wire::Address own = sender_->address();
    sender_.reset();
    sender_ = testing::open_udp_link(own, testing::guard_fd);
  }
  /// Has it connect one to the receiver; returns that socket, -1 if there is none.
  int connected_sender() {
    connect_often();
    const OwnedTrain sent(path_, 7, 1, 64, 1024);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(send({sent.train()}), 1U);
    EXPECT_EQ(receive_all(receiver()).size(), 100U);
    return connected_socket();
  }
  std::size_t send(std::initializer_list<wire::Train> trains) {
    const std::vector<wire::Train> list(trains);
    return sender_->send(list, kNow);
  }

  std::unique_ptr<UdpLink> sender_;
  std::unique_ptr<UdpLink> other_;
  wire::Path path_{};
  IcrcCheck strict_{IcrcCheck::Mode::kStrict};
};

INSTANTIATE_TEST_SUITE_P(Families, UdpLinkTest, ::testing::Bool(),
                         [](const auto& family) { return family.param ? "IPv6" : "IPv4"; });

TEST_P(UdpLinkTest, IpHeadersAreReportedFromTheAskingOn) {
  path_.traffic_class = 0x6A;
  path_.hop_limit = 17;
  const OwnedTrain sent(path_, 77, 1, 100, 1024);
  ASSERT_EQ(send({sent.train()}), 1U);
  const auto before = receive_all(receiver());
  ASSERT_EQ(before.size(), 1U);
  EXPECT_EQ(before[0].path.traffic_class, wire::Path{}.traffic_class);
  EXPECT_EQ(before[0].path.hop_limit, wire::Path{}.hop_limit);
  receiver().report_ip_headers();
  ASSERT_EQ(send({sent.train()}), 1U);
  const auto after = receive_all(receiver());
  ASSERT_EQ(after.size(), 1U);
  EXPECT_EQ(after[0].path, path_);
}

TEST_P(UdpLinkTest, OnePacketArrivesWithItsPathAndIcrc) {
  path_.traffic_class = 0x6A;
  path_.hop_limit = 17;
  receiver().report_ip_headers();
  const OwnedTrain sent(path_, 0x123456, 99, 100, 1024);
  ASSERT_EQ(send({sent.train()}), 1U);
  auto segments = receive_all(receiver());
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0].path, path_);
  EXPECT_EQ(segments[0].position, 0);
  EXPECT_FALSE(segments[0].identification);
  ASSERT_EQ(strict_.filter(segments), 1U);
  const auto packet = wire::parse(segments[0].datagram);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->bth.destination_qp, 0x123456U);
  EXPECT_TRUE(std::ranges::equal(packet->payload, sent.payload()));
}

TEST_P(UdpLinkTest, ATrainLeavesAsOneSendAndArrivesAsOneBatch) {
  const OwnedTrain sent(path_, 5, 0xFFFFFE, 40 * 1024 + 3, 1024);
  ASSERT_EQ(send({sent.train()}), 1U);
  EXPECT_EQ(sender_->counters().sends, 1U);
  auto segments = receive_all(receiver());
  ASSERT_EQ(segments.size(), 41U);
  EXPECT_EQ(receiver().counters().receives, 1U);
  ASSERT_EQ(strict_.filter(segments), 41U);
  std::vector<std::byte> payload;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    EXPECT_EQ(segments[i].position, i);
    const auto packet = wire::parse(segments[i].datagram);
    ASSERT_TRUE(packet);
    EXPECT_EQ(packet->bth.psn, (0xFFFFFE + i) & 0xFFFFFF);
    EXPECT_EQ(packet->bth.ack_request, i == 40);
    payload.insert(payload.end(), packet->payload.begin(), packet->payload.end());
  }
  EXPECT_EQ(payload, sent.payload());
}

TEST_P(UdpLinkTest, SmallMessagesAndAShorterAckShareASend) {
  std::vector<OwnedTrain> sent;
  std::vector<wire::Train> trains;
  for (std::uint32_t i = 0; i < 32; ++i) sent.emplace_back(path_, 7, i, 64, 1024);
  for (const OwnedTrain& one : sent) trains.push_back(one.train());
  trains.push_back(testing::ack(path_, 7, 1));
  ASSERT_EQ(sender_->send(trains, kNow), 33U);
  EXPECT_EQ(sender_->counters().sends, 1U);
  auto segments = receive_all(receiver());
  EXPECT_EQ(strict_.filter(segments), 33U);
}

/// Whichever of three it is, the others leave, each with the ICRC of its place in its send.
TEST_P(UdpLinkTest, AMessageWhoseMemoryWentAwayIsLeftOut) {
  const verbena::testing::FaultHandler handler;
  for (std::uint32_t gone = 0; gone < 3; ++gone) {
    const verbena::testing::Pages pages(1);
    const std::array<ConstBytes, 1> pieces{pages.bytes().first(64)};
    pages.vanish(0, 1);
    std::vector<OwnedTrain> sent;
    std::vector<wire::Train> trains;
    for (std::uint32_t i = 0; i < 3; ++i) sent.emplace_back(path_, 7, i, 64, 1024);
    for (const OwnedTrain& one : sent) trains.push_back(one.train());
    trains[gone].gather = pieces;
    ASSERT_EQ(sender_->send(trains, kNow), 3U);
    auto segments = receive_all(receiver());
    ASSERT_EQ(strict_.filter(segments), 2U) << gone;
    std::vector<std::uint32_t> psns;
    for (const wire::Segment& segment : std::span(segments).first(2))
      psns.push_back(wire::parse(segment.datagram)->bth.psn);
    std::vector<std::uint32_t> others{0, 1, 2};
    others.erase(others.begin() + gone);
    EXPECT_EQ(psns, others);
  }
}

TEST_P(UdpLinkTest, OtherSlotsAndLargerPacketsBeginAnotherSend) {
  const OwnedTrain small(path_, 7, 0, 64, 1024);
  const OwnedTrain large(path_, 7, 1, 65, 1024);
  const OwnedTrain elsewhere(path_, 7 | 1U << 18, 0, 64, 1024);
  ASSERT_EQ(send({small.train(), large.train(), elsewhere.train(), elsewhere.train()}), 4U);
  EXPECT_EQ(sender_->counters().sends, 3U);
  auto segments = receive_all(receiver());
  EXPECT_EQ(strict_.filter(segments), 4U);
}

// Sends alike become the socket's own way of sending: none of it may stick to the sends after them.
TEST_P(UdpLinkTest, SendsOfAllKindsAlternateInRunsOfAllLengths) {
  connect_often();
  receiver().report_ip_headers();
  Random random(5);
  for (int run = 0; run < 200; ++run) {
    path_.hop_limit = random.below(2) == 0 ? 64 : 255;
    path_.traffic_class = random.below(2) == 0 ? 0 : 0x20;
    const OwnedTrain small(path_, 7, 1, 8, 1024);
    const OwnedTrain large(path_, 7, 2, 4096, 4096);
    const OwnedTrain cut(path_, 7, 3, 4096, 1024);
    const auto kind = random.below(4);
    for (auto left = 1 + random.below(24); left > 0; --left) {
      std::vector<wire::Train> trains;
      if (kind != 1) trains.push_back(kind == 2 ? cut.train() : small.train());
      if (kind == 1) trains.push_back(large.train());
      if (kind == 3) trains.push_back(testing::ack(path_, 7, 1));
      ASSERT_EQ(sender_->send(trains, kNow), trains.size());
      auto segments = receive_all(receiver());
      ASSERT_EQ(segments.size(), kind == 2 ? 4U : kind == 3 ? 2U : 1U) << run;
      ASSERT_EQ(strict_.filter(segments), segments.size()) << run;
      ASSERT_EQ(segments.front().path.hop_limit, path_.hop_limit) << run;
      ASSERT_EQ(segments.front().path.traffic_class, path_.traffic_class) << run;
    }
  }
  EXPECT_LE(strict_.counters().solved, 1U);  // where a connected socket began to count
}

TEST_P(UdpLinkTest, WhatGoesToOnePeerAgainAndAgainGoesByAConnectedSocket) {
  connect_often();
  const OwnedTrain one(path_, 7, 1, 64, 1024);
  const OwnedTrain cut(path_, 7, 2, 5 * 1024, 1024);
  const auto port_after = [&](int sends) {
    std::uint16_t port = 0;
    for (int i = 0; i < sends; ++i) {
      EXPECT_EQ(send({one.train(), cut.train()}), 2U);
      auto segments = receive_all(receiver());
      EXPECT_EQ(strict_.filter(segments), 6U);
      port = segments.back().path.source_port;
    }
    return port;
  };
  EXPECT_EQ(port_after(1), wire::kRoceUdpPort);
  const std::uint16_t port = port_after(100);
  if (connected_socket() < 0) GTEST_SKIP() << kNotTold;
  EXPECT_NE(port, wire::kRoceUdpPort);
  EXPECT_EQ(port_after(1), port);
  EXPECT_LE(strict_.counters().solved, 1U);
  sender_->refresh();
  EXPECT_EQ(port_after(1), wire::kRoceUdpPort);
  EXPECT_NE(port_after(100), wire::kRoceUdpPort);
  EXPECT_EQ(receiver().counters().receive_errors, 0U);
}

TEST_P(UdpLinkTest, NothingIsConnectedWithoutAGuard) {
  const OwnedTrain one(path_, 7, 1, 64, 1024);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(send({one.train()}), 1U);
  EXPECT_EQ(connected_socket(), -1);
}

TEST_P(UdpLinkTest, WhatAReceiverHasNoRoomForLeavesGapsThatAreFollowed) {
  connect_often();
  const OwnedTrain one(path_, 7, 1, 64, 1024);
  const OwnedTrain cut(path_, 7, 2, 40 * 1024, 1024);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(send({one.train(), cut.train()}), 2U);
  auto first = receive_all(receiver());
  EXPECT_LT(first.size(), 4100U);
  EXPECT_EQ(strict_.filter(first), first.size());
  ASSERT_EQ(send({one.train(), cut.train()}), 2U);
  auto second = receive_all(receiver());
  EXPECT_EQ(second.size(), 41U);
  // Whatever is numbered far from what came before is lost to a strict one, and tells where it is.
  EXPECT_GE(strict_.filter(second), 40U);
}

TEST_P(UdpLinkTest, WhatAConnectedSocketFailsAtGoesByTheOther) {
  const int connected = connected_sender();
  if (connected < 0) GTEST_SKIP() << kNotTold;
  const OwnedTrain sent(path_, 7, 1, 64, 1024);
  ASSERT_EQ(::shutdown(connected, SHUT_WR), 0);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(send({sent.train()}), 1U);
  EXPECT_EQ(sender_->counters().send_errors, 0U);
  auto segments = receive_all(receiver());
  ASSERT_EQ(segments.size(), 100U);
  EXPECT_EQ(segments.front().path.source_port, wire::kRoceUdpPort);
  EXPECT_EQ(segments.back().path.source_port, wire::kRoceUdpPort);
  EXPECT_EQ(strict_.filter(segments), 100U);
}

// As a whole it leaves by the connected socket, its packets by the link's own.
TEST_P(UdpLinkTest, SegmentsThatAConnectedSocketRefusesGoSinglyByTheOther) {
  const int connected = connected_sender();
  if (connected < 0) GTEST_SKIP() << kNotTold;
  const int off = 1;
  const auto [level, option] =
      GetParam() ? std::pair(IPPROTO_UDP, UDP_NO_CHECK6_TX) : std::pair(SOL_SOCKET, SO_NO_CHECK);
  ASSERT_EQ(sys::setsockopt(connected, level, option, &off, sizeof off), 0);
  const OwnedTrain cut(path_, 7, 2, 5 * 1024, 1024);
  ASSERT_EQ(send({cut.train()}), 1U);
  auto segments = receive_all(receiver());
  ASSERT_EQ(segments.size(), 5U);
  EXPECT_EQ(segments.front().path.source_port, wire::kRoceUdpPort);
  EXPECT_EQ(strict_.filter(segments), 5U);
  EXPECT_TRUE(sender_->segments(path_));  // the link's own socket has refused nothing
}

TEST_P(UdpLinkTest, ALongTrainIsSplitAtTheSendLimits) {
  const OwnedTrain sent(path_, 5, 0, 100 * 1024, 1024);
  ASSERT_EQ(send({sent.train()}), 1U);
  EXPECT_EQ(sender_->counters().sends, 2U);  // 62 and 38 packets
  auto segments = receive_all(receiver());
  ASSERT_EQ(segments.size(), 100U);
  EXPECT_EQ(segments[62].position, 0);
  EXPECT_EQ(strict_.filter(segments), 100U);
}

TEST_P(UdpLinkTest, WhatASpanHasNoRoomForComesNext) {
  const OwnedTrain sent(path_, 5, 0, 10 * 256, 256);
  ASSERT_EQ(send({sent.train()}), 1U);
  std::uint32_t psn = 0;
  for (const std::size_t expected : {4U, 4U, 2U, 0U}) {
    std::array<wire::Segment, 4> segments;
    const std::size_t count = receiver().receive(segments, kNow);
    ASSERT_EQ(count, expected);
    for (const wire::Segment& segment : std::span(segments).first(count)) {
      EXPECT_EQ(segment.position, psn);
      EXPECT_EQ(wire::parse(segment.datagram)->bth.psn, psn++);
    }
    ASSERT_EQ(strict_.filter(std::span(segments).first(count)), count);
  }
}

// Those who receive reuse their segments, for what comes by rings too.
TEST_P(UdpLinkTest, NothingIsLeftOfWhatWasInASegment) {
  class Lender final : public wire::PayloadSource {
   public:
    std::size_t fetch(std::span<const wire::Segment>, std::byte*) override { return 0; }
    Bytes room(std::size_t) override { return {}; }
  } lender;
  const OwnedTrain sent(path_, 1, 1, 100, 1024);
  ASSERT_EQ(send({sent.train()}), 1U);
  std::array<wire::Segment, 1> segments{
      wire::Segment{.identification = 7, .undamaged = true, .lender = &lender, .lent = 32768}};
  ASSERT_EQ(receiver().receive(segments, kNow), 1U);
  EXPECT_FALSE(segments[0].undamaged);
  EXPECT_EQ(segments[0].lender, nullptr);
  EXPECT_EQ(segments[0].lent, 0U);
  EXPECT_FALSE(segments[0].identification);
}

TEST_P(UdpLinkTest, AStreamComesInLargerGulpsThanASinglePacket) {
  const OwnedTrain small(path_, 7, 0, 64, 1024);
  const OwnedTrain large(path_, 7, 1, 65, 1024);
  std::array<wire::Segment, 64> segments;
  const auto send_ten = [&] {
    for (int i = 0; i < 5; ++i) ASSERT_EQ(send({small.train(), large.train()}), 2U);
  };
  send_ten();
  EXPECT_EQ(receiver().receive(segments, kNow), 1U);
  EXPECT_EQ(receiver().receive(segments, kNow), 1U);
  EXPECT_EQ(receiver().receive(segments, kNow), 8U);
  send_ten();
  EXPECT_EQ(receiver().receive(segments, kNow), 10U);
  EXPECT_EQ(receiver().receive(segments, kNow), 0U);
  send_ten();
  EXPECT_EQ(receiver().receive(segments, kNow), 1U);
}

TEST_P(UdpLinkTest, LonePacketsOfAStreamComeSeveralASystemCall) {
  sender_->use_single_packets(path_.destination);
  const OwnedTrain sent(path_, 5, 0, 34 * 256, 256);
  ASSERT_EQ(send({sent.train()}), 1U);
  std::array<wire::Segment, 64> segments;
  EXPECT_EQ(receiver().receive(segments, kNow), 1U);
  EXPECT_EQ(receiver().receive(segments, kNow), 1U);
  const std::uint64_t calls = receiver().counters().receives;
  ASSERT_EQ(receiver().receive(segments, kNow), 32U);
  EXPECT_LE(receiver().counters().receives - calls, 5U);
  for (std::uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(wire::parse(segments[i].datagram)->bth.psn, i + 2);
  EXPECT_EQ(strict_.filter(std::span(segments).first(32)), 32U);
}

TEST_P(UdpLinkTest, SinglePacketsCarryIdentificationZero) {
  EXPECT_TRUE(sender_->segments(path_));
  sender_->use_single_packets(path_.destination);
  EXPECT_FALSE(sender_->segments(path_));
  const OwnedTrain sent(path_, 5, 0, 10 * 256, 256);
  ASSERT_EQ(send({sent.train()}), 1U);
  EXPECT_EQ(sender_->counters().sends, 10U);
  auto segments = receive_all(receiver());
  ASSERT_EQ(segments.size(), 10U);
  for (const wire::Segment& segment : segments) EXPECT_EQ(segment.position, 0);
  EXPECT_EQ(strict_.filter(segments), 10U);
}

TEST_P(UdpLinkTest, PacketsWithoutUdpChecksumArrive) {
  const int fd = sender_->descriptors().front();
  const int one = 1;
  const auto [level, option] =
      GetParam() ? std::pair(IPPROTO_UDP, UDP_NO_CHECK6_TX) : std::pair(SOL_SOCKET, SO_NO_CHECK);
  ASSERT_EQ(sys::setsockopt(fd, level, option, &one, sizeof one), 0);
  const OwnedTrain sent(path_, 5, 0, 16, 256);
  ASSERT_EQ(send({sent.train()}), 1U);
  auto segments = receive_all(receiver());
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(strict_.filter(segments), 1U);
}

TEST_P(UdpLinkTest, TheIcrcIsMadeForTheSocketNotForThePath) {
  path_.source_port = 50000;
  path_.source = address("10.9.8.7");
  path_.destination = receiver().address();
  if (GetParam()) path_.source = address("fd00::7");
  const OwnedTrain sent(path_, 5, 0, 16, 256);
  ASSERT_EQ(send({sent.train()}), 1U);
  EXPECT_EQ(sender_->source_port(), 4791);
  auto segments = receive_all(receiver());
  ASSERT_EQ(strict_.filter(segments), 1U);
  EXPECT_EQ(segments[0].path.source, sender_->address());
  EXPECT_EQ(segments[0].path.source_port, 4791);
}

TEST(UdpLink, APathThatTakesNoSegmentsFallsBackToSinglePackets) {
  // The kernel refuses to segment for a socket that sends no checksums: one way to see it refuse.
  auto sender = testing::open_udp_link(address("127.77.1.3"));
  auto receiver = testing::open_udp_link(address("127.77.1.4"));
  const int one = 1;
  ASSERT_EQ(
      sys::setsockopt(sender->descriptors().front(), SOL_SOCKET, SO_NO_CHECK, &one, sizeof one), 0);
  static int warnings;
  warnings = 0;
  set_log_sink([](LogLevel level, std::string_view) { warnings += level == LogLevel::kWarning; });
  wire::Path path;
  path.destination = receiver->address();
  const OwnedTrain sent(path, 5, 0, 10 * 256 + 1, 256);
  const std::array trains{sent.train(), sent.train()};
  EXPECT_EQ(sender->send(trains, kNow), 2U);
  EXPECT_EQ(sender->send(trains, kNow), 2U);
  set_log_sink(nullptr);
  EXPECT_EQ(warnings, 1);
  EXPECT_EQ(sender->counters().single_fallbacks, 1U);
  EXPECT_EQ(sender->counters().packets_sent, 44U);
  auto segments = receive_all(*receiver);
  ASSERT_EQ(segments.size(), 44U);
  IcrcCheck strict(IcrcCheck::Mode::kStrict);
  EXPECT_EQ(strict.filter(segments), 44U);
}

TEST(UdpLink, AnUnreachableDestinationLosesPackets) {
  auto sender = testing::open_udp_link(address("127.77.1.5"));
  wire::Path path;
  path.destination = address("127.77.1.6");  // nobody listens there
  const OwnedTrain sent(path, 5, 0, 10 * 256, 256);
  const std::array trains{sent.train()};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(sender->send(trains, kNow), 1U);
  path.destination = address("255.255.255.255");  // EACCES without SO_BROADCAST
  const OwnedTrain refused(path, 5, 0, 10, 256);
  const std::array more{refused.train()};
  EXPECT_EQ(sender->send(more, kNow), 1U);
  EXPECT_EQ(sender->counters().send_errors, 1U);
}

TEST(UdpLink, ForeignDatagramsAreDeliveredForTheIcrcCheckToDrop) {
  auto link = testing::open_udp_link(address("127.77.1.7"));
  auto foreign = open_udp_socket(address("127.77.1.8"), 0, Sharing::kExclusive).value();
  const SocketAddress to(link->address(), wire::kRoceUdpPort);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{65507}}) {
    std::vector<std::byte> bytes(size, std::byte{0x11});
    iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    msghdr message{};
    SocketAddress name = to;
    message.msg_name = name.get();
    message.msg_namelen = name.size();
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    ASSERT_EQ(sys::sendmsg(foreign.get(), &message, 0), static_cast<ssize_t>(size));
  }
  auto segments = receive_all(*link);
  EXPECT_EQ(segments.size(), 4U);  // an empty datagram is none
  IcrcCheck solve(IcrcCheck::Mode::kSolve);
  EXPECT_EQ(solve.filter(segments), 0U);
  EXPECT_EQ(solve.counters().bad, 4U);
}

TEST(UdpLink, RefusesASocketWithoutOneAddress) {
  auto any = open_udp_socket(wire::Address::from_ipv4(0), 0, Sharing::kExclusive).value();
  const auto link = UdpLink::create(any.get(), nullptr);
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().condition, std::errc::invalid_argument);
}

}  // namespace
}  // namespace verbena::link
