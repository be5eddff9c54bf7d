// SPDX-License-Identifier: Apache-2.0
#include "nic/interface_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "link/testing.h"

namespace verbena::nic {
namespace {

using link::testing::address;
using testing::HasSubstr;

TEST(PathMtu, FitsWithAllHeadersIntoTheInterfaces) {
  EXPECT_EQ(path_mtu_within(1500, true), 1024U);
  EXPECT_EQ(path_mtu_within(1500, false), 1024U);
  EXPECT_EQ(path_mtu_within(9000, true), 4096U);
  EXPECT_EQ(path_mtu_within(9000, false), 4096U);
  EXPECT_EQ(path_mtu_within(65536, false), 4096U);
  // IP, UDP, BTH, XRC, RETH, immediate and ICRC around 4096 bytes.
  EXPECT_EQ(path_mtu_within(4096 + 20 + 8 + 12 + 4 + 16 + 4 + 4, true), 4096U);
  EXPECT_EQ(path_mtu_within(4096 + 20 + 8 + 12 + 4 + 16 + 4 + 3, true), 2048U);
  EXPECT_EQ(path_mtu_within(4096 + 20 + 8 + 12 + 4 + 16 + 4 + 4, false), 2048U);
  EXPECT_EQ(path_mtu_within(4096 + 40 + 8 + 12 + 4 + 16 + 4 + 4, false), 4096U);
  EXPECT_EQ(path_mtu_within(256 + 68, true), 256U);
  EXPECT_EQ(path_mtu_within(256 + 67, true), 0U);
  EXPECT_EQ(path_mtu_within(0, true), 0U);
}

TEST(InterfaceFit, LoopbackTakesTheLargestOrWhatIsConfigured) {
  NicConfig config;
  config.address = address("127.0.0.1");
  ASSERT_TRUE(fit_to_interface(config));
  EXPECT_EQ(config.interface, "lo");
  EXPECT_GT(config.interface_index, 0U);
  EXPECT_EQ(config.max_mtu, 4096U);
  config.max_mtu = 512;
  ASSERT_TRUE(fit_to_interface(config));
  EXPECT_EQ(config.max_mtu, 512U);
}

TEST(InterfaceFit, AnAddressOfAnotherMachineIsRefusedWithThoseOfThisOne) {
  EXPECT_TRUE(check_is_local(address("127.0.0.1")));
  EXPECT_TRUE(check_is_local(address("127.3.4.5")));
  EXPECT_TRUE(check_is_local(address("::1")));
  for (const auto* other : {"192.0.2.1", "2001:db8::1", "fe80::dead:beef"}) {
    const auto refused = check_is_local(address(other));
    ASSERT_FALSE(refused) << other;
    EXPECT_EQ(refused.error().condition, std::errc::address_not_available);
    EXPECT_THAT(refused.error().message, HasSubstr(other));
    EXPECT_THAT(refused.error().message, HasSubstr("127.0.0.1 (lo)"));
  }
}

}  // namespace
}  // namespace verbena::nic
