// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "verbs/cm/test_ends.h"

namespace verbena::verbs::cm {
namespace {

using namespace testing;

/// Both sides, each with channels of its own; the client in a thread.
struct Connected {
  explicit Connected(listener& server) {
    std::jthread thread([&] { client_side(server.local_addr()); });
    incoming asked = must(server.accept(kPatience));
    EXPECT_EQ(words_of(asked.private_data()), "from the client");
    EXPECT_EQ(asked.local_addr(), server.local_addr());
    server_things.emplace(must(asked.context()));
    auto qp = server_things->qp(asked);
    server_end =
        must(std::move(asked).accept(std::move(qp), {.private_data = bytes_of("from the server")}));
  }
  void client_side(const socket_address& to) {
    resolved found = must(connector::resolve(to, {.from = at(kClient)}));
    client_things.emplace(must(found.context()));
    auto qp = client_things->qp(found);
    client_end = must(
        std::move(found).connect(std::move(qp), {.private_data = bytes_of("from the client")}));
  }

  std::optional<Things> server_things;
  std::optional<Things> client_things;
  std::optional<connection> server_end;
  std::optional<connection> client_end;
};

TEST(Connection, CarriesPrivateDataBothWaysAndData) {
  auto server = must(listener::bind(at(kServer)));
  EXPECT_NE(server.local_addr().port(), 0);
  Connected both(server);
  EXPECT_EQ(words_of(both.client_end->private_data()), "from the server");
  EXPECT_EQ(words_of(both.server_end->private_data()), "from the client");
  EXPECT_EQ(both.client_end->peer_addr(), server.local_addr());
  EXPECT_EQ(both.client_end->local_addr(), both.server_end->peer_addr());
  EXPECT_EQ(both.client_end->local_addr().host(), at(kClient).host());
  EXPECT_EQ(both.client_end->qp().state(), qp_state::rts);
  EXPECT_THAT(
      both.client_end->describe(),
      ::testing::MatchesRegex("rdma_cm id [0-9]+ of 127.93.11.2:[0-9]+ to 127.93.11.1:[0-9]+, "
                              "queue pair 0x[0-9a-f]+ \\(RTS\\)"));

  fill(both.client_things->memory.bytes(), 'x');
  must(both.server_end->qp().post_recv(must(both.server_things->memory.slice(0, 64)), 7));
  must(both.client_end->qp().send(must(both.client_things->memory.slice(0, 64))));
  const work_completion got = both.server_things->next();
  must(got.result());
  EXPECT_EQ(got.wr_id(), 7U);
  EXPECT_EQ(both.server_things->memory.bytes()[63], std::byte{'x'});
  must(both.client_things->next().result());
}

TEST(Connection, BothSidesSeeADisconnect) {
  auto server = must(listener::bind(at(kServer)));
  Connected both(server);
  must(both.server_end->qp().post_recv(must(both.server_things->memory.slice(0, 64)), 9));
  EXPECT_TRUE(both.client_end->is_connected());
  must(both.client_end->disconnect());
  must(both.client_end->disconnect());
  must(both.server_end->wait_disconnected(kPatience));
  must(both.client_end->wait_disconnected(kPatience));
  EXPECT_FALSE(both.client_end->is_connected());
  EXPECT_FALSE(both.server_end->is_connected());
  const work_completion flushed = both.server_things->next();
  EXPECT_EQ(flushed.status(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id(), 9U);
}

TEST(Connection, DestroyedItDisconnectsWhateverElseIsHeld) {
  auto server = must(listener::bind(at(kServer)));
  Connected both(server);
  // A context that came from it must not keep the peer in ignorance.
  const context held = must(both.client_end->context());
  both.client_end.reset();
  must(both.server_end->wait_disconnected(kPatience));
  EXPECT_FALSE(held.name().empty());
}

TEST(Connection, WaitingForADisconnectEndsInTime) {
  auto server = must(listener::bind(at(kServer)));
  Connected both(server);
  const auto waited = both.server_end->wait_disconnected(1ms);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error(), std::errc::timed_out);
  EXPECT_TRUE(both.server_end->is_connected());
  must(both.server_end->handle_waiting());
}

TEST(Connection, OutlivesItsListenerAndEndsInAnyOrder) {
  auto server = std::make_unique<listener>(must(listener::bind(at(kServer))));
  Connected both(*server);
  server.reset();
  both.server_things.reset();  // the queue pair holds what it needs
  must(both.server_end->disconnect());
  must(both.client_end->wait_disconnected(kPatience));
  both.client_things.reset();
  both.server_end.reset();
  both.client_end.reset();
}

TEST(Connection, AMigratedOneIsHandledOnTheOtherChannel) {
  auto server = must(listener::bind(at(kServer)));
  Connected both(server);
  const auto channel = must(event_channel::create());
  must(both.server_end->migrate(channel));
  EXPECT_EQ(both.server_end->event_fd(), -1);
  const auto refused = both.server_end->wait_disconnected(kPatience);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::operation_not_permitted);
  must(both.client_end->disconnect());
  const event happened = must(channel.get_event());
  EXPECT_EQ(happened.type(), event_type::disconnected);
  EXPECT_FALSE(must(both.client_end->handle(happened)));
  EXPECT_TRUE(must(both.server_end->handle(happened)));
  EXPECT_FALSE(both.server_end->is_connected());
}

TEST(Connection, ARefusalHasTheServersWords) {
  auto server = must(listener::bind(at(kServer)));
  std::jthread refuser([&] {
    incoming asked = must(server.accept(kPatience));
    must(std::move(asked).reject(bytes_of("not today")));
  });
  resolved found = must(connector::resolve(server.local_addr()));
  const Things things(must(found.context()));
  auto qp = things.qp(found);
  const auto refused = std::move(found).connect(std::move(qp));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::connection_refused);
  EXPECT_STREQ(refused.error().verb(), "RDMA_CM_EVENT_REJECTED");
  ASSERT_NE(refused.error().refusal(), nullptr);
  EXPECT_EQ(words_of(refused.error().refusal()->private_data), "not today");
  EXPECT_EQ(refused.error().refusal()->status, 28);
  EXPECT_NE(refused.error().message().find("its program said no"), std::string::npos);
}

TEST(Connection, ARequestThatIsDroppedIsRefused) {
  auto server = must(listener::bind(at(kServer)));
  std::jthread dropper([&] { (void)must(server.accept(kPatience)); });
  resolved found = must(connector::resolve(server.local_addr()));
  const Things things(must(found.context()));
  auto qp = things.qp(found);
  const auto refused = std::move(found).connect(std::move(qp));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::connection_refused);
}

TEST(Connection, NobodyListens) {
  std::uint16_t free_port = 0;
  {
    const auto gone = must(listener::bind(at(kServer)));
    free_port = gone.local_addr().port();
  }
  resolved found = must(connector::resolve(at(kServer, free_port)));
  const Things things(must(found.context()));
  auto qp = things.qp(found);
  const auto refused = std::move(found).connect(std::move(qp));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::connection_refused);
  EXPECT_NE(refused.error().message().find("nothing listens there"), std::string::npos)
      << refused.error().message();
}

TEST(Connection, ToNobodyItTimesOut) {
  auto server = must(listener::bind(at(kServer)));
  resolved found = must(connector::resolve(server.local_addr()));
  const Things things(must(found.context()));
  auto qp = things.qp(found);
  // The listener has it, and nobody accepts.
  const auto late = std::move(found).connect(std::move(qp), {}, 50ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), std::errc::timed_out);
}

TEST(Connection, AnAddressThatNoDeviceReaches) {
  const auto far = connector::resolve(at("198.51.100.1", 7), {.timeout = 200ms});
  ASSERT_FALSE(far);
  EXPECT_FALSE(far.error().would_block());
  EXPECT_NE(far.error().message(), "");
  const auto mixed = connector::resolve(at(kServer, 7), {.from = at("::1")});
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error(), std::errc::invalid_argument);
  EXPECT_NE(mixed.error().context().find("two IP versions"), std::string_view::npos);
}

/// Its two steps have that time each, and both together must not come out as less than nothing.
TEST(Connection, IsResolvedForAsLongAsCanBeSaid) {
  auto server = must(listener::bind(at(kServer)));
  constexpr auto kMost = std::chrono::milliseconds::max();
  for (const auto timeout : {kMost, kMost / 2 + std::chrono::seconds(1)})
    must(connector::resolve(server.local_addr(), {.timeout = timeout}));
}

TEST(Connection, TooManyWordsAreNotSent) {
  auto server = must(listener::bind(at(kServer)));
  resolved found = must(connector::resolve(server.local_addr()));
  const Things things(must(found.context()));
  auto qp = things.qp(found);
  const auto refused =
      std::move(found).connect(std::move(qp), {.private_data = std::vector<std::byte>(57)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::message_size);
  EXPECT_NE(refused.error().context().find("there is room for 56"), std::string_view::npos);
}

TEST(Connection, AnothersQueuePairIsRefused) {
  auto server = must(listener::bind(at(kServer)));
  resolved one = must(connector::resolve(server.local_addr()));
  resolved other = must(connector::resolve(server.local_addr()));
  const Things things(must(one.context()));
  auto qp = things.qp(one);
  const auto refused = std::move(other).connect(std::move(qp));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::invalid_argument);
  EXPECT_NE(refused.error().context().find("of another connection"), std::string_view::npos);
}

// --- Without blocking

class Shared : public ::testing::TestWithParam<bool> {};

struct One {
  std::optional<connector> first{};
  std::optional<connecting> second{};
  std::optional<connection> end{};
};

/// Fifty at once, with one thread and without a call that waits for one of them.
TEST_P(Shared, ManyConnectionsOfOneLoop) {
  constexpr std::size_t kMany = 50;
  Loop loop(GetParam());
  std::vector<One> clients(kMany);
  std::vector<One> accepted;
  std::optional<Things> server_things;
  std::optional<Things> client_things;
  for (One& one : clients)
    one.first = must(connector::start(loop.of_client(), loop.server->local_addr()));

  const auto step = [&](One& one, event& happened) {
    if (one.first) {
      auto found = must(one.first->handle(happened));
      if (!found) return;
      one.first.reset();
      if (!client_things) client_things.emplace(must(found->context()));
      auto qp = client_things->qp(*found);
      one.second = must(std::move(*found).start_connect(std::move(qp)));
    } else if (one.second) {
      auto made = must(one.second->handle(happened));
      if (!made) return;
      one.second.reset();
      one.end = std::move(*made);
    } else if (one.end) {
      (void)must(one.end->handle(happened));
    }
  };
  const auto turn = [&] {
    event happened = loop.next();
    if (auto asked = must(loop.server->handle(happened))) {
      if (!server_things) server_things.emplace(must(asked->context()));
      auto qp = server_things->qp(*asked);
      accepted.push_back({.second = must(std::move(*asked).start_accept(std::move(qp)))});
      return;
    }
    for (One& one : clients) step(one, happened);
    for (One& one : accepted) step(one, happened);
  };
  const auto established = [](const One& one) { return one.end.has_value(); };
  while (accepted.size() < kMany || !std::ranges::all_of(clients, established) ||
         !std::ranges::all_of(accepted, established))
    turn();
  for (One& one : clients) must(one.end->disconnect());
  const auto over = [](const One& one) { return !one.end->is_connected(); };
  while (!std::ranges::all_of(clients, over) || !std::ranges::all_of(accepted, over)) turn();
}

TEST_P(Shared, BlockingCallsWouldTakeTheEventsOfOthers) {
  Loop loop(GetParam());
  const auto refused = loop.server->accept(1ms);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::operation_not_permitted);
  EXPECT_NE(refused.error().context().find("the event channel is shared"), std::string_view::npos);
}

TEST_P(Shared, WhatIsNotItsOwnIsLeftAlone) {
  Loop loop(GetParam());
  auto one = must(connector::start(loop.of_client(), loop.server->local_addr()));
  auto other = must(connector::start(loop.of_client(), loop.server->local_addr()));
  std::optional<resolved> found;
  while (!found) {
    event happened = loop.next();
    EXPECT_FALSE(must(loop.server->handle(happened)));
    if (happened.is_of(one.cm_id())) {
      EXPECT_FALSE(must(other.handle(happened)));
      found = must(one.handle(happened));
    } else {
      EXPECT_TRUE(happened.is_of(other.cm_id()));
    }
  }
  EXPECT_FALSE(one.cm_id());
}

INSTANTIATE_TEST_SUITE_P(Channels, Shared, ::testing::Bool(),
                         [](const auto& about) { return about.param ? "One" : "Two"; });

}  // namespace
}  // namespace verbena::verbs::cm
