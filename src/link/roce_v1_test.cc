// SPDX-License-Identifier: Apache-2.0
// A pair of Unix sockets stands for the Ethernet, which would need a privilege.
#include "link/roce_v1.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "link/icrc_check.h"
#include "link/testing.h"
#include "wire/frame.h"

namespace verbena::link {
namespace {

using testing::address;
using testing::OwnedTrain;

constexpr Time kNow{};

MacAddress mac(std::uint8_t last) { return {std::byte{2}, {}, {}, {}, {}, std::byte{last}}; }

std::uint32_t qpn(std::uint8_t slot, std::uint32_t number = 1) {
  return std::uint32_t{slot} << kSlotShift | number;
}

/// A host on the Ethernet that knows the others.
struct Station {
  Station(int the_fd, std::uint8_t last, std::uint8_t slot,
          std::map<wire::Address, MacAddress> known, wire::Address own)
      : fd(the_fd),
        addresses{own},
        link(the_fd, nullptr,
             {.slot = slot,
              .mac = mac(last),
              .lookup =
                  [known = std::move(known)](const wire::Address& host) {
                    const auto found = known.find(host);
                    return found == known.end() ? std::nullopt : std::optional(found->second);
                  },
              .addresses = [this] { return addresses; }}) {}

  /// What has come, with a right ICRC; the datagrams are copied.
  std::vector<std::vector<std::byte>> received() {
    std::vector<std::vector<std::byte>> all;
    std::array<wire::Segment, 16> segments;
    while (const std::size_t count = link.receive(segments, kNow)) {
      const std::size_t good = check.filter(std::span(segments).first(count));
      EXPECT_EQ(good, count);
      for (const wire::Segment& segment : std::span(segments).first(good)) {
        EXPECT_TRUE(segment.path.roce_v1);
        last_path = segment.path;
        all.emplace_back(segment.datagram.begin(), segment.datagram.end());
      }
    }
    return all;
  }

  int fd;
  std::vector<wire::Address> addresses;
  RoceV1Link link;
  IcrcCheck check{IcrcCheck::Mode::kStrict};
  wire::Path last_path{};
};

class RoceV1 : public ::testing::Test {
 protected:
  static constexpr std::uint8_t kSlotA = 3;
  static constexpr std::uint8_t kSlotB = 63;
  static std::array<int, 2> make_wire() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    return ends;
  }
  [[nodiscard]] wire::Path path(const wire::Address& from, const wire::Address& to) const {
    return {.source = from, .destination = to, .traffic_class = 0x5C, .roce_v1 = true};
  }

  const wire::Address at_a_ = address("10.77.0.1");
  const wire::Address at_b_ = address("fe80::b");
  const std::array<int, 2> wire_ = make_wire();
  const sys::OwnedFd end_a_{wire_[0]};
  const sys::OwnedFd end_b_{wire_[1]};
  Station a_{wire_[0], 0xA, kSlotA, {{at_b_, mac(0xB)}}, at_a_};
  Station b_{wire_[1], 0xB, kSlotB, {{at_a_, mac(0xA)}}, at_b_};
};

TEST_F(RoceV1, PacketsComeWithTheirPath) {
  ASSERT_TRUE(RoceV1Link::hear_slot(b_.fd, kSlotB));
  const OwnedTrain train(path(at_a_, at_b_), qpn(kSlotB), 100, 9000, 4096);
  const std::array trains{train.train()};
  EXPECT_EQ(a_.link.send(trains, kNow), 1U);
  const auto datagrams = b_.received();
  ASSERT_EQ(datagrams.size(), 3U);
  std::vector<std::byte> payload;
  for (std::size_t i = 0; i < datagrams.size(); ++i) {
    const wire::Packet packet = wire::parse(datagrams[i]).value();
    EXPECT_EQ(packet.bth.psn, 100 + i);
    payload.insert(payload.end(), packet.payload.begin(), packet.payload.end());
  }
  EXPECT_EQ(payload, train.payload());
  EXPECT_EQ(b_.last_path.source, at_a_);
  EXPECT_EQ(b_.last_path.destination, at_b_);
  EXPECT_EQ(b_.last_path.traffic_class, 0x5C);
}

TEST_F(RoceV1, TheKernelPassesOverOtherSlotsAndOtherFrames) {
  ASSERT_TRUE(RoceV1Link::hear_slot(b_.fd, kSlotB));
  const auto to_b = path(at_a_, at_b_);
  const std::array trains{testing::ack(to_b, qpn(kSlotB - 1), 1),
                          testing::ack(to_b, qpn(kSlotB), 2), testing::ack(to_b, qpn(0), 3)};
  EXPECT_EQ(a_.link.send(trains, kNow), 3U);
  std::array<std::byte, 60> other{};
  store_be(other.data() + 12, std::uint16_t{0x0800});
  EXPECT_EQ(sys::write(a_.fd, other.data(), other.size()), 60);
  std::array<std::byte, 1024> frame;
  ASSERT_GT(sys::read(b_.fd, frame.data(), frame.size()), 0);
  EXPECT_EQ(load_be<std::uint16_t>(frame.data() + 12), wire::kEtherTypeRoce);
  EXPECT_LT(sys::read(b_.fd, frame.data(), frame.size()), 0);
}

TEST_F(RoceV1, WhatIsForAnotherHostIsPassedOver) {
  const auto to_b = path(at_a_, at_b_);
  const std::array trains{testing::ack(to_b, qpn(kSlotB), 1)};
  EXPECT_EQ(a_.link.send(trains, kNow), 1U);
  std::array<std::byte, 256> frame;
  const auto size = static_cast<std::size_t>(sys::read(b_.fd, frame.data(), frame.size()));
  ASSERT_GT(size, 54U);
  const auto hear_changed = [&](std::size_t at) {
    auto changed = frame;
    changed[at] ^= std::byte{1};
    EXPECT_EQ(sys::write(a_.fd, changed.data(), size), static_cast<ssize_t>(size));
    return b_.received().size();
  };
  EXPECT_EQ(hear_changed(200), 1U);      // behind its end: as it was
  EXPECT_EQ(hear_changed(5), 0U);        // another MAC address
  EXPECT_EQ(hear_changed(14 + 39), 0U);  // another GID
  EXPECT_EQ(hear_changed(13), 0U);       // another ethertype
  b_.addresses.push_back(address("fe80::a"));
  b_.link.refresh();
  b_.check = IcrcCheck(IcrcCheck::Mode::kOff);
  EXPECT_EQ(hear_changed(14 + 39), 1U);  // which is the port's now
}

TEST_F(RoceV1, WhatHasNoWayIsLost) {
  const auto unknown = path(at_a_, address("10.77.0.9"));
  const auto foreign = path(address("10.77.0.8"), at_b_);
  const std::array trains{testing::ack(unknown, qpn(kSlotB), 1),
                          testing::ack(foreign, qpn(kSlotB), 2)};
  EXPECT_EQ(a_.link.send(trains, kNow), 2U);
  EXPECT_TRUE(b_.received().empty());
}

TEST_F(RoceV1, PacketsToTheOwnSlotGoRoundWithinTheLink) {
  const auto to_itself = path(at_a_, at_a_);
  EXPECT_EQ(a_.link.poll_timeout(), kNever);
  const OwnedTrain train(to_itself, qpn(kSlotA), 7, 200 * 256, 256);
  const std::array trains{train.train()};
  EXPECT_EQ(a_.link.send(trains, kNow), 0U);  // 128 have room
  EXPECT_EQ(a_.link.poll_timeout(), Time::min());
  auto datagrams = a_.received();
  EXPECT_EQ(datagrams.size(), 128U);
  EXPECT_EQ(a_.link.send(trains, kNow), 1U);
  for (auto& more : a_.received()) datagrams.push_back(std::move(more));
  ASSERT_EQ(datagrams.size(), 200U);
  for (std::size_t i = 0; i < datagrams.size(); ++i)
    EXPECT_EQ(wire::parse(datagrams[i])->bth.psn, 7 + i);
  EXPECT_EQ(a_.link.poll_timeout(), kNever);
  std::byte none{};
  EXPECT_LT(sys::read(b_.fd, &none, 1), 0);
  // Another slot at the same address is another socket's.
  const std::array others{testing::ack(to_itself, qpn(kSlotA + 1), 1)};
  EXPECT_EQ(a_.link.send(others, kNow), 1U);
  EXPECT_EQ(sys::read(b_.fd, &none, 1), 1);
}

TEST_F(RoceV1, AFullWayOutIsGoneOnWith) {
  const OwnedTrain train(path(at_a_, at_b_), qpn(kSlotB), 0, 4000 * 256, 256);
  const std::array trains{train.train()};
  std::size_t came = 0;
  std::uint32_t next = 0;
  for (int round = 0; round < 4000 && came < 4000; ++round) {
    static_cast<void>(a_.link.send(trains, kNow));
    for (const auto& datagram : b_.received()) {
      EXPECT_EQ(wire::parse(datagram)->bth.psn, next++);
      ++came;
    }
  }
  EXPECT_EQ(came, 4000U);
}

TEST(Neighbours, AreRememberedForAWhile) {
  int looks = 0;
  std::optional<MacAddress> known;
  Neighbours neighbours([&](const wire::Address&) {
    ++looks;
    return known;
  });
  const auto host = address("10.77.0.5");
  EXPECT_FALSE(neighbours.find(host, kNow));
  known = mac(5);
  EXPECT_FALSE(neighbours.find(host, kNow + Neighbours::kPause / 2));
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(neighbours.find(host, kNow + Neighbours::kPause), mac(5));
  known = mac(6);
  EXPECT_EQ(neighbours.find(host, kNow + Neighbours::kKept), mac(5));
  EXPECT_EQ(neighbours.find(host, kNow + Neighbours::kPause + Neighbours::kKept), mac(6));
  EXPECT_EQ(looks, 3);
}

}  // namespace
}  // namespace verbena::link
