// SPDX-License-Identifier: Apache-2.0
//
// What holds of every phase of the rdma_cm: one that was moved from reports, and any order of
// destruction is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "verbena/cm.h"
#include "verbs/cm/test_ends.h"
#include "verbs/test_error.h"

namespace verbena::verbs::cm {
namespace {

using namespace testing;
using verbs::testing::emptied;
using verbs::testing::IsRefused;

constexpr auto kEmpty = std::errc::bad_file_descriptor;
constexpr auto kWrong = std::errc::invalid_argument;

TEST(Lifetime, OneThatWasMovedFromReports) {
  const auto channel = must(event_channel::create());
  const auto moved = IsRefused(kEmpty, "id::context", "the handle is empty");

  auto server = must(listener::bind(at(kServer)));
  auto asks = must(connector::start(channel, server.local_addr()));
  EXPECT_FALSE(emptied(asks).cm_id());
  auto found = must(connector::resolve(server.local_addr()));
  const Things things(must(found.context()));
  auto qp = things.qp(found);
  emptied(found);
  EXPECT_THAT(found.context(), moved);
  EXPECT_FALSE(found.peer_addr());
  EXPECT_THAT(found.create_qp(things.pd, {.send_cq = things.cq, .recv_cq = things.cq}),
              IsRefused(kEmpty, "rdma_create_qp", "the handle is empty"));
  EXPECT_THAT(std::move(found).connect(std::move(qp)),
              IsRefused(kEmpty, "resolved::connect", "it was moved from"));

  emptied(server);
  EXPECT_THAT(server.accept(1ms), IsRefused(kEmpty, "listener::accept", "it was moved from"));
  EXPECT_THAT(server.try_accept(), IsRefused(kEmpty, "listener::try_accept", "it was moved from"));
  EXPECT_THAT(server.context(), moved);

  auto answers = must(datagram_listener::bind(at(kServer)));
  emptied(answers);
  EXPECT_THAT(answers.accept(1ms),
              IsRefused(kEmpty, "datagram_listener::accept", "it was moved from"));
  EXPECT_THAT(answers.context(), moved);
  EXPECT_EQ(answers.fd(), -1);

  auto socket = must(multicast_socket::bind(at(kClient)));
  emptied(socket);
  EXPECT_THAT(socket.context(), moved);
  const Things others(must(context::open("vrb1")));
  auto datagrams = must(others.pd.create_qp<ud>({.send_cq = others.cq, .recv_cq = others.cq}));
  EXPECT_THAT(std::move(socket).join(std::move(datagrams), at("239.1.1.1")),
              IsRefused(kEmpty, "multicast_socket::join", "it was moved from"));
}

TEST(Lifetime, ARequestThatWasMovedFromReports) {
  auto server = must(listener::bind(at(kServer)));
  const std::jthread client([to = server.local_addr()] {
    resolved found = must(connector::resolve(to));
    const Things things(must(found.context()));
    auto qp = things.qp(found);
    EXPECT_EQ(std::move(found).connect(std::move(qp)).error(), std::errc::connection_refused);
  });
  incoming asked = must(server.accept(kPatience));
  const Things things(must(asked.context()));
  auto qp = things.qp(asked);
  emptied(asked);  // which refuses
  EXPECT_THAT(asked.context(), IsRefused(kEmpty, "id::context", "the handle is empty"));
  EXPECT_FALSE(asked.peer_addr());
  EXPECT_THAT(std::move(asked).accept(std::move(qp)),
              IsRefused(kEmpty, "incoming::accept", "it was moved from"));
  // NOLINTNEXTLINE(bugprone-use-after-move): it is tested
  EXPECT_THAT(std::move(asked).reject(), IsRefused(kEmpty, "rdma_reject", "the handle is empty"));
}

TEST(Lifetime, APhaseOfDatagramsThatWasMovedFromReports) {
  const auto empty = [](const char* verb) {
    return IsRefused(kEmpty, verb, "the handle is empty");
  };
  auto server = must(datagram_listener::bind(at(kServer)));
  const Things things(must(server.context()));
  auto service = must(things.pd.create_qp<ud>({.send_cq = things.cq, .recv_cq = things.cq}));
  must(service.activate(verbs::port{1}, datagram_qkey));

  auto asks = must(datagram_resolver::start(server.local_addr()));
  emptied(asks);
  EXPECT_FALSE(asks.cm_id());
  EXPECT_EQ(asks.event_fd(), -1);
  EXPECT_THAT(asks.handle_waiting(),
              IsRefused(kEmpty, "datagram_resolver::handle_waiting", "it was moved from"));

  const std::jthread answering([&] {
    datagram_request asked = must(server.accept(kPatience));
    datagram_request kept = std::move(asked);
    // NOLINTBEGIN(bugprone-use-after-move): it is tested
    EXPECT_THAT(asked.context(), empty("id::context"));
    EXPECT_FALSE(asked.peer_addr());
    EXPECT_THAT(std::move(asked).accept(service), empty("rdma_accept"));
    EXPECT_THAT(std::move(asked).reject(), empty("rdma_reject"));
    // NOLINTEND(bugprone-use-after-move)
    must(std::move(kept).accept(service));
  });
  auto peer = must(datagram_resolver::resolve(server.local_addr()));
  emptied(peer);
  EXPECT_THAT(peer.context(), empty("id::context"));
  EXPECT_FALSE(peer.peer_addr());
}

TEST(Lifetime, AGroupThatWasMovedFromReports) {
  auto socket = must(multicast_socket::bind(at(kClient)));
  const Things things(must(socket.context()));
  const auto member = [&] {
    return must(socket.create_qp(things.pd, {.send_cq = things.cq, .recv_cq = things.cq}));
  };
  auto joining = must(std::move(socket).start_join(member(), at("239.93.11.3")));
  auto asked = std::move(joining);
  // NOLINTBEGIN(bugprone-use-after-move): it is tested
  EXPECT_FALSE(joining.cm_id());
  EXPECT_EQ(joining.event_fd(), -1);
  EXPECT_THAT(joining.handle_waiting(),
              IsRefused(kEmpty, "multicast_joining::handle_waiting", "it was moved from"));
  // NOLINTEND(bugprone-use-after-move)
  std::optional<multicast_group> group;
  while (!group) group = must(asked.handle_waiting());
  emptied(*group);
  EXPECT_FALSE(group->qp());
  EXPECT_THAT(group->leave(), IsRefused(kEmpty, "rdma_leave_multicast", "the handle is empty"));
}

/// A connection's two ends.
struct Connected {
  Connected() {
    std::jthread client([this, to = server.local_addr()] {
      resolved found = must(connector::resolve(to));
      there.emplace(must(found.context()));
      auto qp = there->qp(found);
      client_end = must(std::move(found).connect(std::move(qp)));
    });
    incoming asked = must(server.accept(kPatience));
    here.emplace(must(asked.context()));
    auto qp = here->qp(asked);
    server_end = must(std::move(asked).accept(std::move(qp)));
  }
  listener server = must(listener::bind(at(kServer)));
  std::optional<Things> here;
  std::optional<Things> there;
  std::optional<connection> server_end;
  std::optional<connection> client_end;
};

TEST(Lifetime, AConnectionThatWasMovedFromReports) {
  Connected ends;
  connection& one = *ends.server_end;
  connection other = std::move(one);
  // NOLINTNEXTLINE(bugprone-use-after-move): it is tested
  EXPECT_FALSE(one.is_connected());
  EXPECT_FALSE(one.qp());
  EXPECT_FALSE(one.peer_addr());
  EXPECT_EQ(one.event_fd(), -1);
  EXPECT_THAT(one.disconnect(), IsRefused(kEmpty, "rdma_disconnect", "the handle is empty"));
  EXPECT_THAT(one.handle_waiting(),
              IsRefused(kEmpty, "connection::handle_waiting", "it was moved from"));
  EXPECT_THAT(one.migrate(must(event_channel::create())),
              IsRefused(kEmpty, "rdma_migrate_id", "the handle is empty"));
  // It stays so after an end that was seen.
  must(ends.client_end->disconnect());
  must(other.wait_disconnected(kPatience));
  const connection last = std::move(other);
  EXPECT_THAT(other.wait_disconnected(1ms),  // NOLINT(bugprone-use-after-move): it is tested
              IsRefused(kEmpty, "connection::wait_disconnected", "it was moved from"));
}

TEST(Lifetime, AnyOrderOfDestructionIsRight) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    Connected ends;
    std::vector<std::shared_ptr<void>> handles;
    const auto keep = [&](auto handle) {
      handles.push_back(std::make_shared<decltype(handle)>(std::move(handle)));
    };
    keep(std::move(ends.server));
    for (std::optional<Things>* const things : {&ends.here, &ends.there}) {
      keep(std::move((*things)->pd));
      keep(std::move((*things)->cq));
      keep(std::move((*things)->memory));
    }
    // Queue pairs that outlive their connections.
    keep(std::move(ends.client_end->qp()));
    keep(must(ends.server_end->context()));
    keep(std::move(*ends.client_end));
    keep(std::move(*ends.server_end));
    keep(must(event_channel::create()));
    std::ranges::shuffle(handles, std::mt19937(seed));
    for (auto& handle : handles) handle.reset();
  }
}

TEST(Refusal, OfWrongArguments) {
  const auto channel = must(event_channel::create());
  auto one = must(id::create(channel));
  EXPECT_THAT(one.bind(socket_address()), IsRefused(kWrong, "rdma_bind_addr", "no address"));
  EXPECT_THAT(one.resolve_address(socket_address(), 1ms),
              IsRefused(kWrong, "rdma_resolve_addr", "there is no address"));
  EXPECT_THAT(one.resolve_address(at(kServer), 1ms, socket_address()),
              IsRefused(kWrong, "rdma_resolve_addr", "there is no address"));
  EXPECT_THAT(
      one.resolve_address(at(kServer, 1), 1ms, at("::1")),
      IsRefused(kWrong, "rdma_resolve_addr", "[::1]:0 and 127.93.11.1:1 are of two IP versions"));
  EXPECT_THAT(one.context(), IsRefused(std::errc::not_connected, "id::context", "no device"));
  EXPECT_THAT(one.bind(at("198.51.100.1")),
              IsRefused(std::errc::address_not_available, "rdma_bind_addr",
                        "198.51.100.1:0 is of no device of this machine"));
  const std::vector<std::byte> words(200);
  const auto too_long = [&](const char* verb, int most) {
    return IsRefused(std::errc::message_size, verb,
                     "bytes of private data; there is room for " + std::to_string(most));
  };
  EXPECT_THAT(one.connect({.private_data = words}), too_long("rdma_connect", 56));
  EXPECT_THAT(one.accept({.private_data = words}), too_long("rdma_accept", 196));
  EXPECT_THAT(one.reject(words), too_long("rdma_reject", 148));
  auto datagrams = must(id::create(channel, port_space::udp));
  EXPECT_THAT(datagrams.connect({.private_data = words}), too_long("rdma_connect", 180));
  EXPECT_THAT(datagrams.accept({.private_data = words}), too_long("rdma_accept", 136));
  EXPECT_THAT(datagrams.reject(words), too_long("rdma_reject", 136));
  EXPECT_THAT(datagrams.join(at("10.0.0.1")),
              IsRefused(kWrong, "rdma_join_multicast", "10.0.0.1:0 is not the address of a group"));
  EXPECT_THAT(socket_address::from_string("here:1"),
              IsRefused(kWrong, "socket_address::from_string", "names are not looked up"));
  EXPECT_FALSE(must(channel.wait(-1s))) << "a negative time is over";
}

TEST(Refusal, OfCallsThatWouldTakeTheEventsOfOthers) {
  const auto channel = must(event_channel::create());
  auto server = must(listener::bind(channel, at(kServer)));
  const auto shared = [](const char* verb) {
    return IsRefused(std::errc::operation_not_permitted, verb, "the event channel is shared");
  };
  EXPECT_THAT(server.accept(1ms), shared("listener::accept"));
  EXPECT_THAT(server.try_accept(), shared("listener::try_accept"));
  auto datagrams = must(datagram_listener::bind(channel, at(kServer)));
  EXPECT_THAT(datagrams.accept(1ms), shared("datagram_listener::accept"));
  auto alone = must(datagram_listener::bind(at(kServer)));
  EXPECT_THAT(alone.accept(1ms), IsRefused(std::errc::timed_out, "datagram_listener::accept",
                                           "nothing has come within the time"));
}

}  // namespace
}  // namespace verbena::verbs::cm
