// SPDX-License-Identifier: Apache-2.0
//
// The rdma_cm's part of docs/api/coverage.md, "Threads": a channel is used by several threads at
// once; ids, requests and connections are one thread's at a time and go from one to another.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "verbs/cm/test_ends.h"

namespace verbena::verbs::cm {
namespace {

using namespace testing;

TEST(Threads, AChannelsEventsAreTakenByTwoAtOnce) {
  constexpr int kIds = 40;
  const auto server = must(listener::bind(at(kServer)));
  const auto channel = must(event_channel::create());
  std::vector<id> all;
  for (int i = 0; i < kIds; ++i) {
    all.push_back(must(id::create(channel)));
    must(all.back().resolve_address(server.local_addr(), kPatience));
  }
  std::atomic<int> taken{0};
  const auto take = [&] {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (taken < kIds && std::chrono::steady_clock::now() < until) {
      const auto happened = channel.try_get_event();
      if (happened) {
        EXPECT_EQ(happened->type(), event_type::address_resolved);
        ++taken;
      } else {
        EXPECT_TRUE(happened.error().would_block());
        (void)must(channel.wait(1ms));
      }
    }
  };
  {
    const std::jthread one(take);
    const std::jthread other(take);
  }
  EXPECT_EQ(taken, kIds);
}

TEST(Threads, IdsAreMadeAndEndOnOneChannelInAll) {
  const auto channel = must(event_channel::create());
  std::vector<std::jthread> all;
  for (int i = 0; i < 4; ++i)
    all.emplace_back([&] {
      for (int round = 0; round < 16; ++round) {
        auto one = must(id::create(channel));
        must(one.bind(at(kServer)));
        EXPECT_NE(one.local_addr().port(), 0);
      }
    });
}

TEST(Threads, AnIdGoesFromOneToAnother) {
  const auto server = must(listener::bind(at(kServer)));
  const auto channel = must(event_channel::create());
  std::optional<id> one = must(id::create(channel));
  must(one->resolve_address(server.local_addr(), kPatience));
  std::thread([&channel, mine = std::move(*one)]() mutable {
    EXPECT_TRUE(must(channel.get_event()).is_of(mine));
    must(mine.resolve_route(kPatience));
    EXPECT_EQ(must(channel.get_event()).type(), event_type::route_resolved);
    must(mine.close());
  }).join();
}

/// Who listens hands each request to a worker, which hands its connection back.
TEST(Threads, ARequestAndAConnectionGoFromOneToAnother) {
  auto server = must(listener::bind(at(kServer)));
  std::optional<connection> client_end;
  std::optional<Things> client_things;
  std::jthread client([&, to = server.local_addr()] {
    resolved found = must(connector::resolve(to, {.from = at(kClient)}));
    client_things.emplace(must(found.context()));
    // A resolved peer goes to another one, too.
    std::thread([&, mine = std::move(found)]() mutable {
      auto qp = client_things->qp(mine);
      client_end = must(std::move(mine).connect(std::move(qp)));
    }).join();
  });
  std::optional<Things> things;
  std::optional<connection> server_end;
  std::thread([&, asked = must(server.accept(kPatience))]() mutable {
    things.emplace(must(asked.context()));
    auto qp = things->qp(asked);
    must(qp.post_recv(must(things->memory.slice(0, 64)), 3));
    server_end = must(std::move(asked).accept(std::move(qp)));
  }).join();
  client.join();

  const std::jthread last(
      [mine = std::move(*client_end), of = std::move(*client_things)]() mutable {
        must(mine.qp().send(must(of.memory.slice(0, 64))));
        must(of.next().result());
        must(mine.disconnect());
        must(mine.wait_disconnected(kPatience));
      });
  EXPECT_EQ(things->next().wr_id(), 3U);
  must(server_end->wait_disconnected(kPatience));
}

TEST(Threads, AListenerGoesFromOneToAnother) {
  auto server = must(listener::bind(at(kServer)));
  std::thread([mine = std::move(server)]() mutable {
    EXPECT_TRUE(mine.try_accept().error().would_block());
  }).join();
}

}  // namespace
}  // namespace verbena::verbs::cm
