// SPDX-License-Identifier: Apache-2.0
#include "cm/listeners.h"

#include <gtest/gtest.h>

namespace verbena::cm {
namespace {

const wire::Address kHere = wire::Address::from_ipv4(0x0A4D0001);
const wire::Address kThere = wire::Address::from_ipv4(0x0A4D0002);
const wire::Address kSix = wire::Address::from_string("fd77::1").value();

TEST(Listeners, AnAddressGoesBeforeAny) {
  Listeners listeners(8);
  const ListenerId any = listeners.add({.service_id = 1}).value();
  const ListenerId here = listeners.add({.service_id = 1, .address = kHere}).value();
  EXPECT_EQ(listeners.find(1, kHere, RequestKind::kConnection), here);
  EXPECT_EQ(listeners.find(1, kThere, RequestKind::kConnection), any);
  EXPECT_EQ(listeners.find(2, kHere, RequestKind::kConnection), 0U);
  listeners.remove(any);
  EXPECT_EQ(listeners.find(1, kThere, RequestKind::kConnection), 0U);
  EXPECT_EQ(listeners.find(1, kHere, RequestKind::kConnection), here);
}

TEST(Listeners, AnyIsBothFamiliesOrOne) {
  Listeners listeners(8);
  const auto find = [&](std::uint64_t service, const wire::Address& address) {
    return listeners.find(service, address, RequestKind::kConnection);
  };
  const ListenerId six = listeners.add({.service_id = 1, .families = Families::kIpv6}).value();
  EXPECT_EQ(find(1, kSix), six);
  EXPECT_EQ(find(1, kHere), 0U);
  const ListenerId four = listeners.add({.service_id = 1, .families = Families::kIpv4}).value();
  EXPECT_EQ(find(1, kSix), six);
  EXPECT_EQ(find(1, kHere), four);
  const ListenerId both = listeners.add({.service_id = 2}).value();
  EXPECT_EQ(find(2, kSix), both);
  EXPECT_EQ(find(2, kHere), both);
}

TEST(Listeners, ConnectionsAndDatagramsAreNotTheSame) {
  Listeners listeners(8);
  const ListenerId id =
      listeners.add({.service_id = 1, .connections = false, .datagrams = true}).value();
  EXPECT_EQ(listeners.find(1, kHere, RequestKind::kConnection), 0U);
  EXPECT_EQ(listeners.find(1, kHere, RequestKind::kDatagrams), id);
}

TEST(Listeners, OnePlaceIsListenedAtOnce) {
  Listeners listeners(8);
  ASSERT_TRUE(listeners.add({.service_id = 1, .address = kHere}));
  const auto again = listeners.add({.service_id = 1, .address = kHere});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().condition, std::errc::address_in_use);
  EXPECT_TRUE(listeners.add({.service_id = 1, .address = kThere}));
}

TEST(Listeners, ThereIsALimit) {
  Listeners listeners(2);
  const ListenerId first = listeners.add({.service_id = 1}).value();
  ASSERT_TRUE(listeners.add({.service_id = 2}));
  const auto third = listeners.add({.service_id = 3});
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().condition, std::errc::not_enough_memory);
  listeners.remove(first);
  EXPECT_TRUE(listeners.add({.service_id = 3}));
}

TEST(Listeners, SoManyRequestsWaitToBeSeen) {
  Listeners listeners(1);
  const ListenerId id = listeners.add({.service_id = 1, .backlog = 2}).value();
  EXPECT_TRUE(listeners.add_waiting(id, 11));
  EXPECT_TRUE(listeners.add_waiting(id, 12));
  EXPECT_FALSE(listeners.add_waiting(id, 13));
  EXPECT_FALSE(listeners.waits(13));
  listeners.seen(11);
  listeners.seen(11);  // counts once
  EXPECT_TRUE(listeners.add_waiting(id, 14));
  EXPECT_FALSE(listeners.add_waiting(id, 15));
  listeners.remove(id);
  EXPECT_FALSE(listeners.waits(12));
  listeners.seen(12);  // of one that is gone
}

TEST(Listeners, NoBacklogIsTheLongest) {
  Listeners listeners(2);
  const ListenerId none = listeners.add({.service_id = 1}).value();
  const ListenerId long_one = listeners.add({.service_id = 2, .backlog = 1 << 30}).value();
  for (const ListenerId id : {none, long_one}) {
    for (ConnectionId request = 1; request <= kMaxBacklog; ++request)
      ASSERT_TRUE(listeners.add_waiting(id, (id << 16) + request));
    EXPECT_FALSE(listeners.add_waiting(id, id << 16));
  }
}

}  // namespace
}  // namespace verbena::cm
