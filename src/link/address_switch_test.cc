// SPDX-License-Identifier: Apache-2.0
#include "link/address_switch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "link/testing.h"

namespace verbena::link {
namespace {

using testing::address;
using testing::OwnedTrain;

constexpr Time kNow{};

class AddressSwitchTest : public ::testing::Test {
 protected:
  AddressSwitchTest() {
    open("127.77.3.1");
    switch_ = AddressSwitch::create([this] { return routes_; }, nullptr).value();
  }

  void open(const char* at) {
    auto fd = std::make_shared<sys::OwnedFd>(
        open_udp_socket(address(at), wire::kRoceUdpPort, Sharing::kExclusive).value());
    routes_.push_back({.address = address(at), .socket = fd->get(), .keep = fd});
  }
  [[nodiscard]] static OwnedTrain train(const char* from, const char* to, std::uint32_t psn) {
    wire::Path path;
    path.source = address(from);
    path.destination = address(to);
    return OwnedTrain(path, 77, psn, 100, 1024);
  }
  /// Where the packets that have come came from, in order.
  [[nodiscard]] static std::vector<std::string> sources(Link& link) {
    std::vector<std::string> all;
    std::array<wire::Segment, 16> segments;
    while (const std::size_t count = link.receive(segments, kNow)) {
      for (const wire::Segment& segment : std::span(segments).first(count))
        all.push_back(wire::to_string(segment.path.source));
    }
    return all;
  }
  [[nodiscard]] bool readable() const {
    for (const int fd : switch_->descriptors()) {
      pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
      if (::poll(&poll, 1, 0) == 1) return true;
    }
    return false;
  }

  std::vector<AddressSwitch::Route> routes_;
  std::unique_ptr<AddressSwitch> switch_;
  std::unique_ptr<UdpLink> peer_ = testing::open_udp_link(address("127.77.3.9"));
};

using Sources = std::vector<std::string>;

TEST_F(AddressSwitchTest, OneAddressIsTheLinkItself) {
  EXPECT_EQ(switch_->descriptors().front(), routes_.front().socket);
  const OwnedTrain sent = train("127.77.3.1", "127.77.3.9", 1);
  EXPECT_EQ(switch_->send(std::array{sent.train()}, kNow), 1U);
  EXPECT_EQ(sources(*peer_), Sources{"127.77.3.1"});
}

TEST_F(AddressSwitchTest, EachTrainLeavesFromItsSource) {
  open("127.77.3.2");
  switch_->refresh();
  const OwnedTrain a = train("127.77.3.1", "127.77.3.9", 1);
  const OwnedTrain b = train("127.77.3.2", "127.77.3.9", 2);
  const OwnedTrain c = train("127.77.3.3", "127.77.3.9", 3);  // an address that it has not
  const std::array trains{b.train(), a.train(), a.train(), c.train(), b.train()};
  EXPECT_EQ(switch_->send(trains, kNow), 5U);
  EXPECT_EQ(sources(*peer_), (Sources{"127.77.3.2", "127.77.3.1", "127.77.3.1", "127.77.3.2"}));
}

TEST_F(AddressSwitchTest, ReceivesAtAllAndItsDescriptorsTell) {
  open("127.77.3.2");
  const std::vector<int> before(switch_->descriptors().begin(), switch_->descriptors().end());
  switch_->refresh();
  EXPECT_TRUE(std::ranges::equal(switch_->descriptors(), before));
  for (const char* to : {"127.77.3.1", "127.77.3.2"}) {
    EXPECT_FALSE(readable());
    const OwnedTrain sent = train("127.77.3.9", to, 1);
    EXPECT_EQ(peer_->send(std::array{sent.train()}, kNow), 1U);
    EXPECT_TRUE(readable());
    std::array<wire::Segment, 16> segments;
    ASSERT_EQ(switch_->receive(segments, kNow), 1U);
    EXPECT_EQ(segments[0].path.destination, address(to));
  }
}

TEST_F(AddressSwitchTest, ManyAtOnceAreAllReceived) {
  for (int i = 20; i < 60; ++i) open(("127.77.3." + std::to_string(i)).c_str());
  switch_->refresh();
  std::size_t sent = 0;
  for (const auto& route : routes_) {
    for (std::uint32_t psn = 0; psn < 3; ++psn, ++sent)
      peer_->send(
          std::array{train("127.77.3.9", wire::to_string(route.address).c_str(), psn).train()},
          kNow);
  }
  EXPECT_EQ(sources(*switch_).size(), sent);
}

TEST_F(AddressSwitchTest, RoutesOfOneGroupAreToldApartByTheirSockets) {
  for (int i = 0; i < 2; ++i) {
    auto fd = std::make_shared<sys::OwnedFd>(
        open_group_socket(address("239.77.3.1"), wire::kRoceUdpPort, 1).value());
    routes_.push_back({.address = address("239.77.3.1"), .socket = fd->get(), .keep = fd});
  }
  switch_->refresh();
  const OwnedTrain sent = train("127.77.3.9", "239.77.3.1", 1);
  EXPECT_EQ(peer_->send(std::array{sent.train()}, kNow), 1U);
  EXPECT_EQ(sources(*switch_).size(), 2U);
}

TEST_F(AddressSwitchTest, AnAddressThatIsGoneSendsAndReceivesNothing) {
  open("127.77.3.2");
  switch_->refresh();
  const auto kept = routes_.back().keep;  // as by another process
  routes_.pop_back();
  switch_->refresh();
  const OwnedTrain to = train("127.77.3.9", "127.77.3.2", 1);
  EXPECT_EQ(peer_->send(std::array{to.train()}, kNow), 1U);
  EXPECT_FALSE(readable());
  EXPECT_EQ(sources(*switch_), Sources{});
  const OwnedTrain from = train("127.77.3.2", "127.77.3.9", 2);
  EXPECT_EQ(switch_->send(std::array{from.train()}, kNow), 1U);
  EXPECT_EQ(sources(*peer_), Sources{});
}

TEST_F(AddressSwitchTest, LaterAddressesReportIpHeadersToo) {
  switch_->report_ip_headers();
  open("127.77.3.2");
  switch_->refresh();
  wire::Path path;
  path.source = address("127.77.3.9");
  path.destination = address("127.77.3.2");
  path.traffic_class = 0x28;
  const OwnedTrain sent(path, 77, 1, 100, 1024);
  EXPECT_EQ(peer_->send(std::array{sent.train()}, kNow), 1U);
  std::array<wire::Segment, 16> segments;
  ASSERT_EQ(switch_->receive(segments, kNow), 1U);
  EXPECT_EQ(segments[0].path.traffic_class, 0x28);
}

}  // namespace
}  // namespace verbena::link
