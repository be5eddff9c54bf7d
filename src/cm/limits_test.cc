// SPDX-License-Identifier: Apache-2.0
//
// What peers may make a manager keep: backlogs, limits, rates.
#include <gtest/gtest.h>

#include <utility>

#include "cm/manager.h"
#include "cm/test_network.h"

namespace verbena::cm {
namespace {

using namespace test;

TEST(Limits, BeyondItsBacklogAListenerIsDeaf) {
  Two two;
  const std::uint64_t other = kService + 1;
  ASSERT_TRUE(two.server.manager.listen({.service_id = other, .backlog = 2}));
  for (std::uint32_t qp = 1; qp <= 3; ++qp) {
    ASSERT_TRUE(two.client.manager.connect(two.client.to(two.server), request_of(qp, other),
                                           two.network.now));
  }
  two.network.deliver();
  const ConnectionId first = two.server.expect(EventKind::kRequested).id;
  two.server.expect(EventKind::kRequested);
  EXPECT_TRUE(two.server.silent());
  EXPECT_EQ(two.server.manager.counters().over_backlog, 1U);
  two.server.manager.handed_over(first);
  two.server.manager.handed_over(first);  // counts once
  two.network.step();
  two.server.expect(EventKind::kRequested);
  EXPECT_TRUE(two.server.silent());
}

TEST(Limits, AtTheLimitThereIsNoMore) {
  Two two({.max_connections = 4});
  for (std::uint32_t qp = 1; qp <= 4; ++qp) two.connect(qp);
  const auto more =
      two.client.manager.connect(two.client.to(two.server), request_of(5), two.network.now);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().condition, std::errc::not_enough_memory);
  two.network.deliver();
  EXPECT_EQ(two.server.manager.size(), 3U) << "the rest is for what it asks for itself";
  EXPECT_EQ(two.server.manager.counters().over_limit, 1U);
}

TEST(Limits, ARequestThatIsOverWaitsUntilItIsSeen) {
  Two two;
  for (std::uint32_t qp = 1; qp <= 40; ++qp) {
    const ConnectionId mine = two.connect(qp);
    two.network.deliver();
    two.client.manager.abandon(mine, two.network.now);
    two.network.deliver();
  }
  EXPECT_EQ(two.server.manager.counters().over_backlog, 24U);
  two.server.take_events();
  EXPECT_EQ(two.server.events.size(), 16U) << "the requests, and not what became of them";
  const ConnectionId over = two.server.events.front().id;
  EXPECT_FALSE(two.server.manager.accept(over, reply_of(0x22), two.network.now));
  two.server.manager.handed_over(over);
  two.connect(41);
  two.network.deliver();
  two.server.take_events();
  EXPECT_EQ(two.server.events.size(), 17U);
}

TEST(Limits, AFloodOfReqsIsBoundedByTheBacklog) {
  Two two;
  for (std::uint32_t number = 1; number < 20'000; ++number) {
    wire::CmMad mad{.transaction = number, .message = request_of(number)};
    auto& request = std::get<wire::CmReq>(mad.message);
    request.local_id = number;
    request.primary.local_gid = two.client.address;
    request.primary.remote_gid = two.server.address;
    std::array<std::byte, wire::kMadSize> bytes{};
    wire::encode_cm(mad, bytes);
    two.server.manager.handle_datagram(two.client.to(two.server), bytes, two.network.now);
  }
  EXPECT_EQ(two.server.manager.size(), 16U);
  EXPECT_EQ(two.server.manager.counters().over_backlog, 20'000U - 1 - 16);
}

TEST(Limits, AFloodOfRequestsIsTakenAtAModestRate) {
  Config config;
  config.request_burst = 10;
  Two two(config);
  std::uint32_t qp = 0;
  const auto ask = [&](int requests) {
    std::size_t taken = 0;
    for (int i = 0; i < requests; ++i) {
      two.connect(++qp);
      two.network.deliver();
      two.server.take_events();
      for (const Event& event : std::exchange(two.server.events, {})) {
        two.server.manager.handed_over(event.id);  // not the backlog's matter
        ++taken;
      }
    }
    return taken;
  };
  EXPECT_EQ(ask(100), 10U);
  EXPECT_EQ(two.server.manager.counters().over_limit, 90U);
  EXPECT_EQ(ask(5), 0U);
  two.network.now += 3 * config.request_interval;
  EXPECT_EQ(ask(5), 3U);
  two.network.now += 100 * config.request_interval;
  EXPECT_EQ(ask(100), 10U);
}

}  // namespace
}  // namespace verbena::cm
