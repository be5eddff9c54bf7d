// SPDX-License-Identifier: Apache-2.0
#include "link/local_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "link/testing.h"

namespace verbena::link {
namespace {

using testing::address;
using ::testing::HasSubstr;

TEST(LocalAddress, TheLoopbackInterfaceHasItsWholeNetwork) {
  const auto usual = find_local(address("127.0.0.1"));
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->interface, "lo");
  EXPECT_GT(usual->index, 0U);
  const auto other = find_local(address("127.77.1.1"));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->interface, "lo");
  EXPECT_FALSE(find_local(address("192.0.2.1")));  // TEST-NET-1 (RFC 5737): nobody's
  EXPECT_FALSE(find_local(address("2001:db8::1")));
}

TEST(LocalAddress, AnInterfaceStandsForItsFirstIpv4Address) {
  EXPECT_EQ(address_of_interface("lo"), address("127.0.0.1"));
  EXPECT_EQ(address_of_interface("lo/4"), address("127.0.0.1"));
  const auto ipv6 = address_of_interface("lo/6");
  if (find_local(address("::1"))) {
    EXPECT_EQ(ipv6, address("::1"));
  } else {
    ASSERT_FALSE(ipv6);
    EXPECT_EQ(ipv6.error().message, "lo has no IPv6 address");
  }
}

TEST(LocalAddress, WhatIsNoInterfaceIsToldThoseThatThereAre) {
  for (const auto* name : {"nowhere0", "nowhere0/6", "/4", ""}) {
    const auto refused = address_of_interface(name);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().condition, std::errc::no_such_device);
    EXPECT_THAT(refused.error().message, HasSubstr("lo"));
  }
  EXPECT_THAT(describe_local_addresses(), HasSubstr("127.0.0.1 (lo)"));
}

TEST(LocalAddress, AnInterfaceTellsItsMtu) {
  const auto mtu = interface_mtu("lo");
  ASSERT_TRUE(mtu) << mtu.error().message;
  EXPECT_GE(*mtu, 1500U);
  const auto refused = interface_mtu("nowhere0");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().condition, std::errc::no_such_device);
}

}  // namespace
}  // namespace verbena::link
