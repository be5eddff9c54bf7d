// SPDX-License-Identifier: Apache-2.0
#include "link/udp_socket.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "link/icrc_check.h"
#include "link/local_address.h"
#include "link/testing.h"

namespace verbena::link {
namespace {

using testing::address;
using testing::OwnedTrain;

constexpr Time kNow{};

std::uint32_t loopback() { return find_local(address("127.0.0.1")).value().index; }

std::unique_ptr<UdpLink> join(const char* group) {
  auto fd = std::make_shared<sys::OwnedFd>(
      open_group_socket(address(group), wire::kRoceUdpPort, loopback()).value());
  auto link = UdpLink::create(fd->get(), fd).value();
  link->report_ip_headers();
  return link;
}

void send(UdpLink& from, const char* to, std::uint8_t hop_limit = 64) {
  wire::Path path;
  path.destination = address(to);
  path.hop_limit = hop_limit;
  const OwnedTrain sent(path, wire::kMulticastQp, 1, 100, 1024);
  EXPECT_EQ(from.send(std::array{sent.train()}, kNow), 1U);
}

/// What has come, with a right ICRC.
std::vector<wire::Path> receive(UdpLink& at) {
  std::array<wire::Segment, 16> segments;
  IcrcCheck check(IcrcCheck::Mode::kStrict);
  std::vector<wire::Path> paths;
  while (const std::size_t count = at.receive(segments, kNow)) {
    const std::size_t good = check.filter(std::span(segments).first(count));
    for (const wire::Segment& segment : std::span(segments).first(good))
      paths.push_back(segment.path);
  }
  return paths;
}

TEST(GroupSocket, EachGetsOneCopyOfWhatIsSentToItsGroup) {
  const auto from = testing::open_udp_link(address("127.77.4.1"));
  const auto one = join("239.77.4.1");
  const auto two = join("239.77.4.1");
  const auto other = join("239.77.4.2");
  send(*from, "239.77.4.1");
  for (UdpLink* const member : {one.get(), two.get()}) {
    const auto paths = receive(*member);
    ASSERT_EQ(paths.size(), 1U);
    EXPECT_EQ(paths[0].source, address("127.77.4.1"));
    EXPECT_EQ(paths[0].destination, address("239.77.4.1"));
  }
  EXPECT_TRUE(receive(*other).empty());
  send(*from, "127.77.4.2");
  EXPECT_TRUE(receive(*one).empty());
}

TEST(GroupSocket, MulticastsCarryTheirPathsHopLimit) {
  const auto from = testing::open_udp_link(address("127.77.4.1"));
  const auto to = join("239.77.4.1");
  // Often enough for the socket to be set for it.
  for (int i = 0; i < 20; ++i) send(*from, "239.77.4.1", 7);
  send(*from, "239.77.4.1", 64);
  const auto paths = receive(*to);
  ASSERT_EQ(paths.size(), 21U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(paths[static_cast<std::size_t>(i)].hop_limit, 7) << i;
  EXPECT_EQ(paths[20].hop_limit, 64);
}

TEST(GroupSocket, SaysWhyAGroupCannotBeJoined) {
  const auto none = open_group_socket(address("239.77.4.1"), wire::kRoceUdpPort, 1U << 30);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().condition, std::errc::no_such_device);
  const auto unicast = open_group_socket(address("127.77.4.1"), wire::kRoceUdpPort, loopback());
  ASSERT_FALSE(unicast);
  EXPECT_EQ(unicast.error().condition, std::errc::invalid_argument);
}

}  // namespace
}  // namespace verbena::link
