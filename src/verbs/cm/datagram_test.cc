// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>

#include "verbena/cm_datagram.h"
#include "verbs/cm/test_ends.h"

namespace verbena::verbs::cm {
namespace {

using namespace testing;

constexpr std::size_t kGrh = 40;  ///< before a datagram's data

queue_pair<ud> activated(const Things& things) {
  auto qp = must(things.pd.create_qp<ud>({.send_cq = things.cq, .recv_cq = things.cq}));
  must(qp.activate(verbs::port{1}, datagram_qkey));
  return qp;
}

/// Sends one and sees it arrive.
void send_one(const Things& from, const queue_pair<ud>& sender, const datagram_target& to,
              const Things& into, const queue_pair<ud>& receiver) {
  must(receiver.post_recv(must(into.memory.slice(0, 1024)), 5));
  const auto ah = must(to.create_ah(from.pd));
  const auto data = must(from.memory.slice(2048, 100));
  fill(from.memory.bytes().subspan(2048, 100), 'd');
  must(sender.send({ah, to.to, to.key}, data));
  const work_completion got = into.next();
  must(got.result());
  EXPECT_EQ(got.wr_id(), 5U);
  EXPECT_EQ(got.byte_len(), kGrh + 100);
  EXPECT_EQ(got.src_qp(), sender.number());
  EXPECT_EQ(into.memory.bytes()[kGrh + 99], std::byte{'d'});
  must(from.next().result());
}

TEST(Datagram, APeerIsResolvedAndReached) {
  auto server = must(datagram_listener::bind(at(kServer)));
  EXPECT_NE(server.local_addr().port(), 0);
  const Things server_things(must(server.context()));
  const auto server_qp = activated(server_things);
  std::jthread answering([&] {
    auto asked = must(server.accept(kPatience));
    EXPECT_EQ(words_of(asked.private_data()), "who is it");
    must(std::move(asked).accept(server_qp, bytes_of("it is me")));
  });
  const auto peer = must(datagram_resolver::resolve(server.local_addr(), bytes_of("who is it"),
                                                    {.from = at(kClient)}));
  EXPECT_EQ(words_of(peer.private_data()), "it is me");
  EXPECT_EQ(peer.target().to, server_qp.number());
  EXPECT_EQ(peer.target().key, datagram_qkey);
  EXPECT_EQ(peer.peer_addr(), server.local_addr());

  const Things things(must(peer.context()));
  send_one(things, activated(things), peer.target(), server_things, server_qp);
}

TEST(Datagram, APeerRefuses) {
  auto server = must(datagram_listener::bind(at(kServer)));
  std::jthread refusing(
      [&] { must(std::move(must(server.accept(kPatience))).reject(bytes_of("go away"))); });
  const auto refused = datagram_resolver::resolve(server.local_addr());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::connection_refused) << refused.error().message();
  ASSERT_NE(refused.error().refusal(), nullptr);
  EXPECT_NE(refused.error().refusal()->status, 0);
}

TEST(Datagram, NobodyAnswersInTime) {
  auto server = must(datagram_listener::bind(at(kServer)));
  const auto late = datagram_resolver::resolve(server.local_addr(), {}, {}, 50ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), std::errc::timed_out);
}

TEST(Datagram, WithoutBlockingOnOneChannel) {
  const auto channel = must(event_channel::create());
  auto server = must(datagram_listener::bind(channel, at(kServer)));
  const Things things(must(server.context()));
  const auto qp = activated(things);
  auto asking = must(datagram_resolver::start(channel, server.local_addr()));
  std::optional<datagram_peer> peer;
  while (!peer) {
    ASSERT_TRUE(must(channel.wait(kPatience)));
    event happened = must(channel.try_get_event());
    if (auto asked = must(server.handle(happened))) must(std::move(*asked).accept(qp));
    peer = must(asking.handle(happened));
  }
  EXPECT_EQ(peer->target().to, qp.number());
}

/// One of a group's members.
struct Member {
  explicit Member(std::string_view host)
      : socket(must(multicast_socket::bind(at(host)))), things(must(socket.context())) {}
  multicast_group join(const socket_address& group) {
    auto qp = must(socket.create_qp(things.pd, {.send_cq = things.cq, .recv_cq = things.cq}));
    return must(std::move(socket).join(std::move(qp), group));
  }
  multicast_socket socket;
  Things things;
};

TEST(Multicast, MembersGetWhatIsSentToTheGroup) {
  const auto group = at("239.93.11.1");
  Member one(kServer);
  Member other(kClient);
  auto of_one = one.join(group);
  auto of_other = other.join(group);
  EXPECT_EQ(of_one.group(), group);
  EXPECT_TRUE(of_one.target().way.to.is_multicast());
  EXPECT_EQ(of_one.target().to.value(), 0xFFFFFFU);
  EXPECT_EQ(of_one.target().key, of_other.target().key);
  send_one(one.things, of_one.qp(), of_one.target(), other.things, of_other.qp());
  must(of_other.leave());
  EXPECT_EQ(of_other.leave().error(), std::errc::bad_file_descriptor);
}

TEST(Multicast, OnlyGroupsAreJoined) {
  Member one(kServer);
  auto qp = must(
      one.socket.create_qp(one.things.pd, {.send_cq = one.things.cq, .recv_cq = one.things.cq}));
  const auto refused = std::move(one.socket).join(std::move(qp), at("10.0.0.1"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), std::errc::invalid_argument);
  EXPECT_NE(refused.error().context().find("10.0.0.1:0 is not the address of a group"),
            std::string_view::npos);
}

TEST(Multicast, AQueuePairMayOutliveItsGroup) {
  Member one(kServer);
  std::optional<multicast_group> member = one.join(at("239.93.11.2"));
  const queue_pair<ud> outlives = std::move(member->qp());
  member.reset();
  EXPECT_EQ(outlives.state(), qp_state::rts);
}

}  // namespace
}  // namespace verbena::verbs::cm
