// SPDX-License-Identifier: Apache-2.0
#include "nic/slot_groups.h"

#include <gtest/gtest.h>

#include <array>

#include "link/icrc_check.h"
#include "link/testing.h"
#include "nic/live_host.h"

namespace verbena::nic {
namespace {

using link::testing::address;
using link::testing::OwnedTrain;

const wire::Address kGroup = address("239.77.5.1");

link::AddressSwitch::Route at(const char* text) { return {.address = address(text)}; }

TEST(SlotGroups, AreRoutesBehindTheAddresses) {
  ForkLedger ledger;
  SlotGroups groups(ledger);
  EXPECT_EQ(groups.with_groups({at("127.0.0.1")}).size(), 1U);
  ASSERT_TRUE(groups.join(kGroup));
  const auto routes = groups.with_groups({at("127.0.0.1"), at("127.77.5.2")});
  ASSERT_EQ(routes.size(), 3U);  // both addresses are on one interface
  EXPECT_EQ(routes[0].address, address("127.0.0.1"));
  EXPECT_EQ(routes[2].address, kGroup);
  EXPECT_EQ(link::bound_address(routes[2].socket).value().address(), kGroup);
  EXPECT_EQ(ledger.next(routes[2].socket), routes[2].socket);
  // A route that stays is the same one.
  EXPECT_EQ(groups.with_groups({at("127.0.0.1")})[1].socket, routes[2].socket);
  groups.leave(kGroup);
  EXPECT_EQ(groups.with_groups({at("127.0.0.1")}).size(), 1U);
}

TEST(SlotGroups, FollowTheAddresses) {
  ForkLedger ledger;
  SlotGroups groups(ledger);
  static_cast<void>(groups.with_groups({at("127.0.0.1")}));
  ASSERT_TRUE(groups.join(kGroup));
  EXPECT_EQ(groups.with_groups({at("192.0.2.1")}).size(), 1U);  // no interface has it
  EXPECT_EQ(groups.with_groups({at("127.0.0.1")}).size(), 2U);
}

TEST(SlotGroups, SayWhyAGroupCannotBeJoined) {
  ForkLedger ledger;
  SlotGroups groups(ledger);
  static_cast<void>(groups.with_groups({at("192.0.2.1")}));
  const auto nowhere = groups.join(kGroup);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().condition, std::errc::no_such_device);
  static_cast<void>(groups.with_groups({at("127.0.0.1")}));
  EXPECT_FALSE(groups.join(address("127.77.5.1")));
  EXPECT_EQ(groups.with_groups({at("127.0.0.1")}).size(), 1U);
}

class LiveMulticast : public ::testing::Test {
 protected:
  /// Datagrams with a right ICRC that have come.
  std::size_t receive(const Attachment& at) {
    std::array<wire::Segment, 16> segments;
    link::IcrcCheck check(link::IcrcCheck::Mode::kStrict);
    std::size_t good = 0;
    while (const std::size_t count = at.link->receive(segments, host_->now()))
      good += check.filter(std::span(segments).first(count));
    return good;
  }
  void join(const Attachment& at) {
    ASSERT_TRUE(at.membership->join(kGroup));
    at.link->refresh();
  }
  void send(const Attachment& from, const char* source, std::uint32_t psn = 1) {
    wire::Path path{.source = address(source), .destination = kGroup};
    const OwnedTrain sent(path, wire::kMulticastQp, psn, 100, 1024);
    const std::array trains{sent.train(), sent.train()};  // which leave as one send
    EXPECT_EQ(from.link->send(trains, host_->now()), 2U);
  }

  std::unique_ptr<LiveHost> host_ = LiveHost::create({}).value();
};

TEST_F(LiveMulticast, EverySlotAtEveryAddressGetsItsCopy) {
  auto first = host_->attach(address("127.77.5.3")).value();
  auto second = host_->attach(address("127.77.5.3")).value();
  auto elsewhere = host_->attach(address("127.77.5.4")).value();
  auto bystander = host_->attach(address("127.77.5.4")).value();
  for (const Attachment* const member : {&first, &second, &elsewhere}) join(*member);
  send(first, "127.77.5.3");
  for (const Attachment* const member : {&first, &second, &elsewhere})
    EXPECT_EQ(receive(*member), 2U);
  EXPECT_EQ(receive(bystander), 0U);
  // Who is no member may send.
  send(bystander, "127.77.5.4", 2);
  second.membership->leave(kGroup);
  second.link->refresh();
  EXPECT_EQ(receive(first), 2U);
  EXPECT_EQ(receive(second), 0U);
  EXPECT_EQ(receive(elsewhere), 2U);
}

}  // namespace
}  // namespace verbena::nic
