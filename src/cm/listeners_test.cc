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
  EXPECT_EQ(listeners.find(1, kHere), here);
  EXPECT_EQ(listeners.find(1, kThere), any);
  EXPECT_EQ(listeners.find(2, kHere), 0U);
  listeners.remove(any);
  EXPECT_EQ(listeners.find(1, kThere), 0U);
  EXPECT_EQ(listeners.find(1, kHere), here);
}

TEST(Listeners, AnyIsBothFamiliesUnlessItIsToBeIpv6) {
  Listeners listeners(8);
  const ListenerId six = listeners.add({.service_id = 1, .ipv6_only = true}).value();
  EXPECT_EQ(listeners.find(1, kSix), six);
  EXPECT_EQ(listeners.find(1, kHere), 0U);
  ASSERT_TRUE(listeners.add({.service_id = 2}));
  EXPECT_NE(listeners.find(2, kSix), 0U);
  EXPECT_NE(listeners.find(2, kHere), 0U);
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

TEST(Listeners, SoManyRequestsWait) {
  Listeners listeners(1);
  const ListenerId id = listeners.add({.service_id = 1, .backlog = 2}).value();
  EXPECT_TRUE(listeners.add_waiting(id));
  EXPECT_TRUE(listeners.add_waiting(id));
  EXPECT_FALSE(listeners.add_waiting(id));
  listeners.remove_waiting(id);
  EXPECT_TRUE(listeners.add_waiting(id));
  listeners.remove(id);
  listeners.remove_waiting(id);  // of one that is gone
}

}  // namespace
}  // namespace verbena::cm
