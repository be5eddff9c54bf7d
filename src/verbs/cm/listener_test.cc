// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>

#include "verbena/cm_listener.h"
#include "verbs/cm/test_ends.h"

namespace verbena::verbs::cm {
namespace {

using namespace testing;

TEST(Listener, HasAPortOfItsOwnChoice) {
  const auto one = must(listener::bind(at(kServer)));
  const auto other = must(listener::bind(at(kServer)));
  EXPECT_EQ(one.local_addr().host(), at(kServer).host());
  EXPECT_NE(one.local_addr().port(), 0);
  EXPECT_NE(one.local_addr(), other.local_addr());
  EXPECT_GE(one.fd(), 0);
  EXPECT_FALSE(must(one.context()).name().empty());
}

TEST(Listener, APortIsTakenOnce) {
  const auto one = must(listener::bind(at(kServer)));
  const auto again = listener::bind(one.local_addr());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error(), std::errc::address_in_use);
  EXPECT_NE(again.error().message().find(one.local_addr().to_string() + " is bound already"),
            std::string::npos)
      << again.error().message();
}

TEST(Listener, AnAddressOfNoDevice) {
  const auto nowhere = listener::bind(at("198.51.100.1", 7000));
  ASSERT_FALSE(nowhere);
  EXPECT_NE(nowhere.error().message().find("198.51.100.1:7000"), std::string::npos)
      << nowhere.error().message();
  const auto nothing = listener::bind(socket_address());
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error(), std::errc::invalid_argument);
}

TEST(Listener, OnAllAddressesItHasNoDevice) {
  const auto all = must(listener::bind(socket_address::any_ipv4()));
  const auto device = all.context();
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error(), std::errc::not_connected);
}

TEST(Listener, NobodyAsks) {
  auto server = must(listener::bind(at(kServer)));
  const auto none = server.try_accept();
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().would_block());
  const auto late = server.accept(1ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), std::errc::timed_out);
}

TEST(Listener, AMovedFromOneReports) {
  auto server = must(listener::bind(at(kServer)));
  auto moved = std::move(server);
  // NOLINTBEGIN(bugprone-use-after-move): it is what is tested
  EXPECT_EQ(server.accept(1ms).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(server.try_accept().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(server.context().error(), std::errc::bad_file_descriptor);
  EXPECT_FALSE(server.local_addr());
  EXPECT_EQ(server.fd(), -1);
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_TRUE(moved.local_addr());
}

TEST(Listener, AQueuePairOfARequestMayOutliveIt) {
  auto server = must(listener::bind(at(kServer)));
  std::jthread client([to = server.local_addr()] {
    resolved found = must(connector::resolve(to));
    const Things things(must(found.context()));
    auto qp = things.qp(found);
    const auto refused = std::move(found).connect(std::move(qp));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), std::errc::connection_refused);
  });
  std::optional<queue_pair<rc>> outlives;
  {
    incoming asked = must(server.accept(kPatience));
    const Things things(must(asked.context()));
    outlives = things.qp(asked);
  }
  client.join();
  EXPECT_EQ(outlives->state(), qp_state::init);
}

}  // namespace
}  // namespace verbena::verbs::cm
