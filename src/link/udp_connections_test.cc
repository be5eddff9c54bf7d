// SPDX-License-Identifier: Apache-2.0
#include "link/udp_connections.h"

#include <gtest/gtest.h>

#include <memory>

#include "link/testing.h"

namespace verbena::link {
namespace {

using testing::address;

class UdpConnectionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const SocketAddress peer(there_, wire::kRoceUdpPort);
    if (!UdpOutlet::connected(own_, peer, fd_.get(), testing::guard_fd))
      GTEST_SKIP() << "this kernel does not tell how it numbers packets";
  }
  /// Whether a connected socket is there after so many sends.
  bool connects(const wire::Address& destination, std::uint32_t slot, int sends = 100) {
    UdpOutlet* last = nullptr;
    for (int i = 0; i < sends; ++i) last = connections_.outlet(destination, slot);
    return last != nullptr;
  }

  const wire::Address there_ = address("127.77.3.2");
  // Somebody has to listen there.
  std::unique_ptr<UdpLink> peer_ = testing::open_udp_link(there_);
  std::unique_ptr<UdpLink> other_ = testing::open_udp_link(address("127.77.3.3"));
  sys::OwnedFd fd_ = open_udp_socket(address("127.77.3.1"), 0, Sharing::kExclusive).value();
  SocketAddress own_ = bound_address(fd_.get()).value();
  UdpConnections connections_{fd_.get(), own_, testing::guard_fd};
};

TEST_F(UdpConnectionsTest, EachSlotOfAPeerHasItsOwnOnceItIsWorthIt) {
  EXPECT_FALSE(connects(there_, 0, 5));
  ASSERT_TRUE(connects(there_, 0));
  ASSERT_TRUE(connects(there_, 1));
  EXPECT_NE(connections_.outlet(there_, 0)->port(), connections_.outlet(there_, 1)->port());
  EXPECT_EQ(connections_.outlet(there_, 0), connections_.outlet(there_, 0));
}

TEST_F(UdpConnectionsTest, NoneWithoutAGuard) {
  connections_ = UdpConnections(fd_.get(), own_, {});
  EXPECT_FALSE(connects(there_, 0));
}

TEST_F(UdpConnectionsTest, NoneForGroupsAndOtherMachines) {
  EXPECT_FALSE(connects(address("224.0.0.5"), 0));
  EXPECT_FALSE(connects(address("192.0.2.1"), 0));
  EXPECT_FALSE(connects(address("255.255.255.255"), 0));
}

TEST_F(UdpConnectionsTest, NoneWhereItWasRefused) {
  ASSERT_TRUE(connects(there_, 0));
  connections_.refuse(there_);
  EXPECT_FALSE(connects(there_, 0));
  EXPECT_TRUE(connects(other_->address(), 0));
  connections_.forget();
  EXPECT_TRUE(connects(there_, 0));
}

// More destinations than places.
TEST_F(UdpConnectionsTest, WhoeverGetsNothingMoreMakesRoom) {
  for (std::uint32_t slot = 0; slot < 64; ++slot) ASSERT_TRUE(connects(there_, slot, 200)) << slot;
}

TEST_F(UdpConnectionsTest, WhoIsSentToNowAndThenTakesNoPlace) {
  ASSERT_TRUE(connects(there_, 0));
  for (std::uint32_t slot = 1; slot < 1000; ++slot) {
    EXPECT_FALSE(connects(there_, slot, 1));
    EXPECT_NE(connections_.outlet(there_, 0), nullptr);
  }
}

}  // namespace
}  // namespace verbena::link
