// SPDX-License-Identifier: Apache-2.0
#include "verbena/asio_cm.h"

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using testing::must;

/// A queue pair of its own for each phase.
struct Things {
  template <typename Phase>
  explicit Things(Phase& of)
      : device(must(of.context())),
        pd(must(device.alloc_pd())),
        cq(must(device.create_cq({.depth = 64}))),
        qp(must(of.create_qp(pd, {.send_cq = cq, .recv_cq = cq}))) {}
  context device;
  protection_domain pd;
  completion_queue cq;
  queue_pair<rc> qp;
};

cm::listener bind_server() {
  const auto row = must(must(context::open("vrb0")).routable_gid());
  return must(cm::listener::bind(cm::socket_address(row.id, 0)));
}

asio::awaitable<void> accept_one(cm::listener& server, std::optional<cm::connection>& to) {
  const auto executor = co_await asio::this_coro::executor;
  auto asked = co_await cm::async_accept(executor, server, asio::use_awaitable);
  Things things(*asked);
  to = co_await cm::async_accept(executor, std::move(*asked), std::move(things.qp), {},
                                 asio::use_awaitable);
}
asio::awaitable<void> connect_one(const cm::socket_address peer,
                                  std::optional<cm::connection>& to) {
  const auto executor = co_await asio::this_coro::executor;
  auto found = co_await cm::async_resolve(executor, peer, {}, asio::use_awaitable);
  Things things(*found);
  to = co_await cm::async_connect(executor, std::move(*found), std::move(things.qp), {},
                                  asio::use_awaitable);
}

TEST(AsioConnects, BothSidesAsCoroutines) {
  asio::io_context io;
  auto server = bind_server();
  std::optional<cm::connection> near;
  std::optional<cm::connection> far;
  asio::co_spawn(io, accept_one(server, far), asio::detached);
  asio::co_spawn(io, connect_one(server.local_addr(), near), asio::detached);
  io.run();
  ASSERT_TRUE(near && far);
  EXPECT_EQ(near->qp().state(), qp_state::rts);
  EXPECT_EQ(near->local_addr(), far->peer_addr());

  int over = 0;
  const auto count = [&](error_code error) {
    EXPECT_FALSE(error);
    ++over;
  };
  cm::async_disconnected(io.get_executor(), *far, count);
  cm::async_disconnect(io.get_executor(), *near, count);
  io.restart();
  io.run();
  EXPECT_EQ(over, 2);
  EXPECT_FALSE(near->is_connected());
  EXPECT_FALSE(far->is_connected());
}

asio::awaitable<void> answer_one(cm::datagram_listener& server, const queue_pair<ud>& qp) {
  const auto executor = co_await asio::this_coro::executor;
  auto asked = co_await cm::async_accept(executor, server, asio::use_awaitable);
  must(std::move(*asked).accept(qp));
}
asio::awaitable<void> ask_one(const cm::socket_address service,
                              std::optional<cm::datagram_peer>& to) {
  const auto executor = co_await asio::this_coro::executor;
  to = co_await cm::async_resolve_datagram(executor, service, {}, {}, asio::use_awaitable);
}
asio::awaitable<void> join_one(const cm::socket_address with,
                               std::optional<cm::multicast_group>& to) {
  const auto executor = co_await asio::this_coro::executor;
  auto socket = must(cm::multicast_socket::bind(with));
  const auto device = must(socket.context());
  const auto pd = must(device.alloc_pd());
  const auto cq = must(device.create_cq({.depth = 16}));
  auto qp = must(socket.create_qp(pd, {.send_cq = cq, .recv_cq = cq}));
  to = co_await cm::async_join(executor, std::move(socket), std::move(qp),
                               must(cm::socket_address::from_string("239.93.45.1:0")),
                               asio::use_awaitable);
}

TEST(AsioDatagrams, AServiceIsFoundAndAGroupJoined) {
  asio::io_context io;
  const testing::End end("vrb0");
  const cm::socket_address here(must(end.ctx.routable_gid()).id, 0);
  auto server = must(cm::datagram_listener::bind(here));
  auto qp = must(end.pd.create_qp<ud>({.send_cq = end.cq, .recv_cq = end.cq}));
  must(qp.activate(port{1}, cm::datagram_qkey));
  std::optional<cm::datagram_peer> peer;
  std::optional<cm::multicast_group> group;
  asio::co_spawn(io, answer_one(server, qp), asio::detached);
  asio::co_spawn(io, ask_one(server.local_addr(), peer), asio::detached);
  asio::co_spawn(io, join_one(here, group), asio::detached);
  io.run();
  ASSERT_TRUE(peer && group);
  EXPECT_EQ(peer->target().to, qp.number());
  EXPECT_TRUE(group->target().way.to.is_multicast());
}

TEST(AsioConnects, ASlotCancelsAStep) {
  asio::io_context io;
  auto server = bind_server();
  asio::cancellation_signal signal;
  error_code how;
  cm::async_accept(io.get_executor(), server,
                   asio::bind_cancellation_slot(
                       signal.slot(), [&](error_code error, std::optional<cm::incoming> who) {
                         how = error;
                         EXPECT_FALSE(who);
                       }));
  asio::post(io, [&] { signal.emit(asio::cancellation_type::terminal); });
  io.run();
  EXPECT_EQ(how, asio::error::operation_aborted);
}

asio::awaitable<void> note_refusal(const cm::socket_address peer, error_code& how) {
  std::optional<cm::connection> none;
  try {
    co_await connect_one(peer, none);
  } catch (const boost::system::system_error& error) {
    how = error.code();
  }
}

TEST(AsioConnects, ARefusalIsAsAsioHasIt) {
  asio::io_context io;
  const auto nobody = bind_server().local_addr();
  error_code how;
  asio::co_spawn(io, note_refusal(nobody, how), asio::detached);
  io.run();
  EXPECT_EQ(how, asio::error::connection_refused);
}

TEST(AsioConnects, WhatCannotBeginIsAnErrorInTheHandler) {
  asio::io_context io;
  error_code how;
  cm::async_resolve(io.get_executor(), cm::socket_address(), {},
                    [&](error_code error, const std::optional<cm::resolved>& found) {
                      how = error;
                      EXPECT_FALSE(found);
                    });
  EXPECT_FALSE(how);
  io.run();
  EXPECT_EQ(how, boost::system::errc::invalid_argument);
}

}  // namespace
}  // namespace verbena::verbs
