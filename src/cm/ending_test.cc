// SPDX-License-Identifier: Apache-2.0
//
// How connections end: DREQ and DREP, timewait, and programs that let go of them.
#include <gtest/gtest.h>

#include <array>
#include <tuple>
#include <utility>

#include "cm/test_network.h"

namespace verbena::cm {
namespace {

using namespace test;

TEST(Ending, DreqAndDrepEndIt) {
  Two two;
  const auto [mine, theirs] = two.established();
  const std::array said{std::byte{1}, std::byte{2}};
  ASSERT_TRUE(two.client.manager.disconnect(mine, said, two.network.now));
  two.network.deliver();
  const Event asked = two.server.expect(EventKind::kDisconnecting);
  EXPECT_EQ(std::get<wire::CmDreq>(asked.message).private_data[1], std::byte{2});
  EXPECT_TRUE(two.client.silent()) << "the other side has not answered";
  ASSERT_TRUE(two.server.manager.disconnect(theirs, {}, two.network.now));
  two.network.deliver();
  EXPECT_EQ(two.client.expect(EventKind::kDisconnected).id, mine);
  EXPECT_EQ(two.client.manager.state(mine), State::kTimewait);
  EXPECT_EQ(two.server.manager.state(theirs), State::kTimewait);
  const Time ended = two.network.now;
  two.expect_nothing_left();
  EXPECT_EQ(two.network.now - ended, duration_of(16));
  EXPECT_EQ(two.client.expect(EventKind::kTimewaitOver).id, mine);
  EXPECT_EQ(two.server.expect(EventKind::kTimewaitOver).id, theirs);
}

TEST(Ending, APeerDoesNotSayForHowLongItLingers) {
  Two two;
  wire::CmReq request = request_of(0x11);
  request.primary.local_ack_timeout = 31;  // 2.4 hours
  const ConnectionId mine =
      two.client.manager.connect(two.client.to(two.server), request, two.network.now).value();
  two.network.deliver();
  const ConnectionId theirs = two.server.expect(EventKind::kRequested).id;
  ASSERT_TRUE(two.server.manager.accept(theirs, reply_of(0x22), two.network.now));
  two.network.deliver();
  ASSERT_TRUE(two.client.manager.confirm(mine, {}));
  two.network.deliver();
  ASSERT_TRUE(two.client.manager.disconnect(mine, {}, two.network.now));
  two.network.deliver();
  ASSERT_TRUE(two.server.manager.disconnect(theirs, {}, two.network.now));
  const Time ended = two.network.now;
  two.expect_nothing_left();
  EXPECT_EQ(two.network.now - ended, duration_of(20));
}

TEST(Ending, BothSidesMayEndItAtOnce) {
  Two two;
  const auto [mine, theirs] = two.established();
  ASSERT_TRUE(two.client.manager.disconnect(mine, {}, two.network.now));
  ASSERT_TRUE(two.server.manager.disconnect(theirs, {}, two.network.now));
  two.expect_nothing_left();
  two.client.expect(EventKind::kDisconnected);
  two.server.expect(EventKind::kDisconnected);
  two.client.expect(EventKind::kTimewaitOver);
  two.server.expect(EventKind::kTimewaitOver);
  EXPECT_EQ(two.network.count<wire::CmDreq>(), 2U);
}

TEST(Ending, NobodyAnswersTheDreq) {
  Two two;
  const auto [mine, theirs] = two.established();
  two.network.lost = [](const wire::CmMad&) { return true; };
  ASSERT_TRUE(two.client.manager.disconnect(mine, {}, two.network.now));
  two.network.run_out();
  EXPECT_EQ(two.client.expect(EventKind::kDisconnected).id, mine);
  EXPECT_EQ(two.client.expect(EventKind::kTimewaitOver).id, mine);
  EXPECT_EQ(two.network.count<wire::CmDreq>(), 16U + kEarly);
  EXPECT_EQ(two.server.manager.state(theirs), State::kEstablished);
}

TEST(Ending, WhoGaveUpStillAnswersADreq) {
  Two two;
  const auto [mine, theirs] = two.established();
  two.network.lost = [](const wire::CmMad&) { return true; };
  ASSERT_TRUE(two.client.manager.disconnect(mine, {}, two.network.now));
  while (two.client.manager.state(mine) != State::kTimewait) ASSERT_TRUE(two.network.step());
  two.network.lost = [](const wire::CmMad&) { return false; };
  ASSERT_TRUE(two.server.manager.disconnect(theirs, {}, two.network.now));
  two.network.deliver();
  two.server.expect(EventKind::kDisconnected);
  EXPECT_EQ(two.network.sent.back().transaction, (two.network.sent.end() - 2)->transaction);
  // And so does who was told, when the DREP was lost.
  EXPECT_EQ(two.network.last<wire::CmDrep>().remote_id, theirs);
}

TEST(Ending, ADreqNamesOurQueuePair) {
  Two two;
  const auto [mine, theirs] = two.established();
  std::array<std::byte, wire::kMadSize> bytes{};
  wire::encode_cm({.message = wire::CmDreq{.local_id = mine, .remote_id = theirs, .remote_qp = 1}},
                  bytes);
  two.server.manager.handle_datagram(two.client.to(two.server), bytes, two.network.now);
  EXPECT_TRUE(two.server.silent());
  EXPECT_EQ(two.server.manager.counters().malformed, 1U);
}

TEST(Ending, APeerThatForgotAConnectionIsToldThatItIsOver) {
  Two two;
  const auto [mine, theirs] = two.established();
  static_cast<void>(mine);
  End again(1, 99);  // the client's process, begun anew
  Network network({&again, &two.server});
  ASSERT_TRUE(two.server.manager.disconnect(theirs, {}, network.now));
  network.deliver();
  two.server.expect(EventKind::kDisconnected);
  EXPECT_EQ(again.manager.counters().unexpected, 1U);
}

TEST(Ending, AQueuePairMayConnectAnewWhileTheLastConnectionLingers) {
  Two two;
  const auto [mine, theirs] = two.established(0x11, 0x22);
  ASSERT_TRUE(two.client.manager.disconnect(mine, {}, two.network.now));
  two.network.deliver();
  two.server.expect(EventKind::kDisconnecting);
  ASSERT_TRUE(two.server.manager.disconnect(theirs, {}, two.network.now));
  two.network.deliver();
  two.client.expect(EventKind::kDisconnected);
  EXPECT_EQ(two.server.manager.state(theirs), State::kTimewait);
  const auto again = two.established(0x11, 0x22);
  EXPECT_EQ(two.client.manager.state(again.first), State::kEstablished);
}

/// A pair whose connection has come so far; the numbers of both sides, 0 where there is none.
std::pair<ConnectionId, ConnectionId> bring_to(Two& two, State client) {
  if (client == State::kReqSent) {
    const ConnectionId mine = two.connect();
    two.network.deliver();
    const ConnectionId theirs = two.server.expect(EventKind::kRequested).id;
    two.server.manager.handed_over(theirs);
    return {mine, theirs};
  }
  if (client == State::kRepReceived) return two.up_to_reply();
  const auto ids = two.established();
  if (client == State::kEstablished) return ids;
  EXPECT_TRUE(two.client.manager.disconnect(ids.first, {}, two.network.now));
  two.network.deliver();
  two.server.expect(EventKind::kDisconnecting);
  if (client == State::kTimewait) {
    EXPECT_TRUE(two.server.manager.disconnect(ids.second, {}, two.network.now));
    two.network.deliver();
    two.client.expect(EventKind::kDisconnected);
  }
  return ids;
}

/// However far it is, who abandons a connection hears no more of it and leaves nothing behind.
class Abandoned : public testing::TestWithParam<std::tuple<State, bool>> {};

TEST_P(Abandoned, LeavesNothingBehind) {
  const auto [state, by_client] = GetParam();
  Two two;
  const auto [mine, theirs] = bring_to(two, state);
  EXPECT_EQ(two.client.manager.state(mine), state);
  End& leaver = by_client ? two.client : two.server;
  End& other = by_client ? two.server : two.client;
  leaver.manager.abandon(by_client ? mine : theirs, two.network.now);
  two.network.deliver();
  EXPECT_EQ(other.silent(), state == State::kTimewait || (state == State::kDreqSent && by_client))
      << "the other side is told, unless it was";
  other.events.clear();
  other.manager.abandon(by_client ? theirs : mine, two.network.now);
  two.expect_nothing_left();
  EXPECT_TRUE(leaver.silent());
  EXPECT_TRUE(other.silent());
}

INSTANTIATE_TEST_SUITE_P(Ending, Abandoned,
                         testing::Combine(testing::Values(State::kReqSent, State::kRepReceived,
                                                          State::kEstablished, State::kDreqSent,
                                                          State::kTimewait),
                                          testing::Bool()));

}  // namespace
}  // namespace verbena::cm
