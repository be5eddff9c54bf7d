// SPDX-License-Identifier: Apache-2.0
// What needs an Ethernet and CAP_NET_RAW is tried between two machines (tests/interop/machines).
#include "link/packet.h"

#include <gtest/gtest.h>

namespace verbena::link {
namespace {

TEST(PacketLink, SaysWhyAnInterfaceCannotBeTaken) {
  const auto nowhere = PacketLink::open("no-such-eth");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().condition, std::errc::no_such_device);
  EXPECT_NE(nowhere.error().message.find("no-such-eth"), std::string::npos);
  // Who has the privilege is told what is wrong with it.
  const auto loopback = PacketLink::open("lo");
  ASSERT_FALSE(loopback);
  if (loopback.error().condition == std::errc::operation_not_permitted) {
    EXPECT_NE(loopback.error().message.find("CAP_NET_RAW"), std::string::npos);
  } else {
    EXPECT_EQ(loopback.error().condition, std::errc::invalid_argument);
    EXPECT_NE(loopback.error().message.find("no Ethernet"), std::string::npos);
  }
}

}  // namespace
}  // namespace verbena::link
