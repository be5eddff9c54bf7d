// SPDX-License-Identifier: Apache-2.0
#include "cm/connections.h"

#include <gtest/gtest.h>

#include "cm/test_network.h"

namespace verbena::cm {
namespace {

using namespace test;
using std::chrono::seconds;

TEST(Connections, ReqRepAndRtuConnect) {
  Two two;
  const ConnectionId mine = two.connect();
  two.network.deliver();
  const Event requested = two.server.expect(EventKind::kRequested);
  EXPECT_EQ(requested.listener, two.listener);
  EXPECT_EQ(requested.path.destination, two.client.address);
  const auto& request = std::get<wire::CmReq>(requested.message);
  EXPECT_EQ(request.local_id, mine);
  EXPECT_EQ(request.local_qp, 0x11U);
  EXPECT_EQ(request.starting_psn, 0x123456U);
  EXPECT_EQ(request.primary.local_gid, two.client.address);
  EXPECT_EQ(request.primary.remote_gid, two.server.address);
  EXPECT_EQ(request.private_data[0], std::byte{0xA1});
  EXPECT_EQ(request.ece, request_of(0x11).ece);
  ASSERT_TRUE(two.server.manager.accept(requested.id, reply_of(0x22), two.network.now));
  two.network.deliver();
  const Event replied = two.client.expect(EventKind::kReplied);
  const auto& reply = std::get<wire::CmRep>(replied.message);
  EXPECT_EQ(reply.local_id, requested.id);
  EXPECT_EQ(reply.remote_id, mine);
  EXPECT_EQ(reply.local_qp, 0x22U);
  EXPECT_EQ(reply.private_data[0], std::byte{0xB2});
  EXPECT_EQ(reply.ece, reply_of(0x22).ece);
  ASSERT_TRUE(two.client.manager.confirm(mine, {}));
  two.network.deliver();
  EXPECT_EQ(two.server.expect(EventKind::kEstablished).id, requested.id);
  EXPECT_EQ(two.client.manager.state(mine), State::kEstablished);
  EXPECT_EQ(two.network.sent.size(), 3U);
  // One conversation, one transaction.
  EXPECT_EQ(two.network.sent[0].transaction, two.network.sent[1].transaction);
  EXPECT_EQ(two.network.sent[0].transaction, two.network.sent[2].transaction);
  EXPECT_FALSE(two.network.step()) << "nothing is due on an established connection";
}

/// Which message of a whole conversation is lost, the first time.
class EachLoss : public testing::TestWithParam<std::size_t> {};

TEST_P(EachLoss, IsMadeUpFor) {
  Two two;
  bool once = false;
  two.network.lost = [&](const wire::CmMad& mad) {
    return mad.message.index() == GetParam() && !std::exchange(once, true);
  };
  const ConnectionId mine = two.connect();
  ConnectionId theirs = 0;
  const auto until = [&](End& end, EventKind kind) {
    two.network.deliver();
    while (end.silent() && two.network.step()) {}
    return end.expect(kind);
  };
  theirs = until(two.server, EventKind::kRequested).id;
  ASSERT_TRUE(two.server.manager.accept(theirs, reply_of(0x22), two.network.now));
  until(two.client, EventKind::kReplied);
  ASSERT_TRUE(two.client.manager.confirm(mine, {}));
  until(two.server, EventKind::kEstablished);
  ASSERT_TRUE(two.client.manager.disconnect(mine, {}, two.network.now));
  until(two.server, EventKind::kDisconnecting);
  ASSERT_TRUE(two.server.manager.disconnect(theirs, {}, two.network.now));
  while (two.client.silent() && two.network.step()) {}
  two.client.expect(EventKind::kDisconnected);
  EXPECT_TRUE(once);
  two.expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Connections, EachLoss,
                         testing::Values(wire::CmMessage(wire::CmReq{}).index(),
                                         wire::CmMessage(wire::CmRep{}).index(),
                                         wire::CmMessage(wire::CmRtu{}).index(),
                                         wire::CmMessage(wire::CmDreq{}).index(),
                                         wire::CmMessage(wire::CmDrep{}).index()));

TEST(Connections, NobodyAnswersTheReq) {
  Two two;
  two.network.lost = [](const wire::CmMad&) { return true; };
  const ConnectionId mine = two.connect();
  const Time began = two.network.now;
  two.expect_nothing_left();
  const Event event = two.client.expect(EventKind::kUnreachable);
  EXPECT_EQ(event.id, mine);
  EXPECT_TRUE(std::holds_alternative<wire::CmReq>(event.message));
  EXPECT_EQ(two.network.count<wire::CmReq>(), 16U + kEarly);
  // At least as long as Linux tries, and the pauses before: 31/32 of a time more.
  const Duration wait = duration_of(20) + 2 * duration_of(16);
  EXPECT_EQ(two.network.now - began, 16 * wait + 31 * (wait / 32));
  EXPECT_EQ(two.network.last<wire::CmRej>().reason, wire::RejectReason::kTimeout);
}

TEST(Connections, NobodyAnswersTheRep) {
  Two two;
  const auto [mine, theirs] = two.up_to_reply();
  two.network.lost = [](const wire::CmMad&) { return true; };
  two.client.manager.abandon(mine, two.network.now);
  two.expect_nothing_left();
  EXPECT_EQ(two.server.expect(EventKind::kUnreachable).id, theirs);
  EXPECT_EQ(two.network.count<wire::CmRep>(), 16U + kEarly);
  EXPECT_TRUE(two.client.silent());
}

TEST(Connections, WhoTakesItsTimeSaysSo) {
  Two two;
  two.connect();
  two.network.deliver();
  const ConnectionId theirs = two.server.expect(EventKind::kRequested).id;
  const Time asked = two.network.now;
  ASSERT_TRUE(two.network.step());  // the REQ goes again, and an MRA comes
  EXPECT_EQ(two.network.count<wire::CmMra>(), 1U);
  EXPECT_EQ(two.network.last<wire::CmMra>().subject, wire::CmSubject::kReq);
  ASSERT_TRUE(two.network.step());
  EXPECT_GE(two.network.now - asked, duration_of(24));
  EXPECT_EQ(two.network.count<wire::CmReq>(), 3U);
  ASSERT_TRUE(two.server.manager.accept(theirs, reply_of(0x22), two.network.now));
  two.network.deliver();
  const ConnectionId mine = two.client.expect(EventKind::kReplied).id;
  ASSERT_TRUE(two.network.step());  // the REP goes again
  EXPECT_EQ(two.network.last<wire::CmMra>().subject, wire::CmSubject::kRep);
  EXPECT_EQ(two.server.manager.state(theirs), State::kMraRepReceived);
  ASSERT_TRUE(two.client.manager.confirm(mine, {}));
  two.network.deliver();
  two.server.expect(EventKind::kEstablished);
}

TEST(Connections, AProgramMaySayNo) {
  Two two;
  two.connect();
  two.network.deliver();
  const ConnectionId theirs = two.server.expect(EventKind::kRequested).id;
  wire::CmRej rejection{.reason = wire::RejectReason::kConsumer};
  rejection.private_data[3] = std::byte{9};
  ASSERT_TRUE(two.server.manager.reject(theirs, rejection));
  two.network.deliver();
  const Event event = two.client.expect(EventKind::kRejected);
  EXPECT_EQ(std::get<wire::CmRej>(event.message).reason, wire::RejectReason::kConsumer);
  EXPECT_EQ(std::get<wire::CmRej>(event.message).private_data[3], std::byte{9});
  EXPECT_EQ(two.client.manager.size() + two.server.manager.size(), 0U);
}

TEST(Connections, TheClientMaySayNoToTheRep) {
  Two two;
  const auto [mine, theirs] = two.up_to_reply();
  ASSERT_TRUE(two.client.manager.reject(mine, {.reason = wire::RejectReason::kConsumer}));
  two.network.deliver();
  EXPECT_EQ(two.server.expect(EventKind::kRejected).id, theirs);
  EXPECT_EQ(two.network.last<wire::CmRej>().subject, wire::CmSubject::kRep);
  EXPECT_EQ(two.client.manager.size() + two.server.manager.size(), 0U);
}

TEST(Connections, WhatMayNotBeAskedForIsRefused) {
  Two two;
  const auto reason_for = [&](const wire::CmReq& request) {
    const wire::Path path = two.client.to(two.server);
    EXPECT_TRUE(two.client.manager.connect(path, request, two.network.now));
    two.network.deliver();
    return std::get<wire::CmRej>(two.client.expect(EventKind::kRejected).message).reason;
  };
  EXPECT_EQ(reason_for(request_of(1, kService + 1)), wire::RejectReason::kInvalidServiceId);
  wire::CmReq request = request_of(1);
  request.transport = wire::CmTransport::kRd;
  EXPECT_EQ(reason_for(request), wire::RejectReason::kInvalidTransport);
  request.transport = wire::CmTransport::kExtended;
  EXPECT_EQ(reason_for(request), wire::RejectReason::kInvalidTransport);
  for (const std::uint8_t mtu : std::initializer_list<std::uint8_t>{0, 6, 15}) {
    request = request_of(1);
    request.path_mtu = mtu;
    EXPECT_EQ(reason_for(request), wire::RejectReason::kInvalidMtu);
  }
  EXPECT_TRUE(two.server.silent());
  EXPECT_EQ(two.server.manager.size(), 0U);
}

TEST(Connections, AReqForSomebodyElsesAddressIsRefused) {
  Two two;
  wire::CmMad mad{.transaction = 5, .message = request_of(0x11)};
  auto& request = std::get<wire::CmReq>(mad.message);
  request.local_id = 77;
  request.primary.local_gid = wire::Address::from_ipv4(0x0A4D0063);
  request.primary.remote_gid = two.server.address;
  std::array<std::byte, wire::kMadSize> bytes{};
  wire::encode_cm(mad, bytes);
  two.server.manager.handle_datagram(two.client.to(two.server), bytes, two.network.now);
  two.network.deliver();
  EXPECT_EQ(two.network.last<wire::CmRej>().reason, wire::RejectReason::kInvalidGid);
  EXPECT_EQ(two.network.last<wire::CmRej>().remote_id, 77U);
  EXPECT_TRUE(two.server.silent());
}

TEST(Connections, DataBeforeTheRtuEstablishes) {
  Two two;
  const auto [mine, theirs] = two.up_to_reply();
  ASSERT_TRUE(two.server.manager.established(theirs));
  EXPECT_EQ(two.server.expect(EventKind::kEstablished).id, theirs);
  ASSERT_TRUE(two.server.manager.established(theirs));
  ASSERT_TRUE(two.client.manager.confirm(mine, {}));
  two.network.deliver();
  EXPECT_TRUE(two.server.silent());
  EXPECT_EQ(two.server.manager.poll_timeout(), Time::max());
}

TEST(Connections, ARepForNobodyIsRejected) {
  Two two;
  two.connect();
  two.network.deliver();
  const ConnectionId theirs = two.server.expect(EventKind::kRequested).id;
  End again(1, 99);
  Network network({&again, &two.server});
  ASSERT_TRUE(two.server.manager.accept(theirs, reply_of(0x22), network.now));
  network.deliver();
  const Event event = two.server.expect(EventKind::kRejected);
  EXPECT_EQ(std::get<wire::CmRej>(event.message).reason,
            wire::RejectReason::kInvalidCommunicationId);
  EXPECT_EQ(two.server.manager.size(), 0U);
}

TEST(Connections, AReqWithAConnectedQueuePairIsStaleAndEndsWhatWas) {
  Two two;
  const auto [mine, theirs] = two.established();
  static_cast<void>(mine);
  End again(1, 99);
  Network network({&again, &two.server});
  const wire::Path path = again.to(two.server);
  ASSERT_TRUE(again.manager.connect(path, request_of(0x11), network.now));
  network.deliver();
  const Event refused = again.expect(EventKind::kRejected);
  EXPECT_EQ(std::get<wire::CmRej>(refused.message).reason, wire::RejectReason::kStaleConnection);
  EXPECT_EQ(two.server.expect(EventKind::kDisconnected).id, theirs);
  network.run_out();
  two.server.expect(EventKind::kTimewaitOver);
  ASSERT_TRUE(again.manager.connect(path, request_of(0x11), network.now));
  network.deliver();
  two.server.expect(EventKind::kRequested);
}

TEST(Connections, ARepWithAConnectedQueuePairEndsWhatWas) {
  Two two;
  const auto [mine, theirs] = two.established(0x11, 0x22);
  static_cast<void>(theirs);
  End again(2, 99);  // the server's process, begun anew
  ASSERT_TRUE(again.manager.listen({.service_id = kService}));
  Network network({&two.client, &again});
  ASSERT_TRUE(two.client.manager.connect(two.client.to(again), request_of(0x12), network.now));
  network.deliver();
  const ConnectionId first = again.expect(EventKind::kRequested).id;
  ASSERT_TRUE(again.manager.accept(first, reply_of(0x22), network.now));
  network.deliver();
  again.expect(EventKind::kRejected);
  EXPECT_EQ(network.last<wire::CmRej>().reason, wire::RejectReason::kStaleConnection);
  EXPECT_EQ(two.client.expect(EventKind::kDisconnected).id, mine);
  while (again.silent()) ASSERT_TRUE(network.step());  // the REQ goes again
  const ConnectionId second = again.expect(EventKind::kRequested).id;
  ASSERT_TRUE(again.manager.accept(second, reply_of(0x22), network.now));
  network.deliver();
  two.client.expect(EventKind::kReplied);
  while (two.client.silent()) ASSERT_TRUE(network.step());
  EXPECT_EQ(two.client.expect(EventKind::kTimewaitOver).id, mine);
}

TEST(Connections, XrcTargetsHaveTheirNumberInTheirOwnPlace) {
  Two two;
  wire::CmReq request = request_of(0x11);
  request.transport = wire::CmTransport::kExtended;
  request.extended_transport = wire::kCmExtendedXrc;
  const ConnectionId mine =
      two.client.manager.connect(two.client.to(two.server), request, two.network.now).value();
  two.network.deliver();
  const ConnectionId theirs = two.server.expect(EventKind::kRequested).id;
  ASSERT_TRUE(two.server.manager.accept(theirs, reply_of(0x22), two.network.now));
  two.network.deliver();
  EXPECT_EQ(two.network.last<wire::CmRep>().local_qp, 0U);
  EXPECT_EQ(two.network.last<wire::CmRep>().local_eec, 0x22U);
  ASSERT_TRUE(two.client.manager.confirm(mine, {}));
  ASSERT_TRUE(two.client.manager.disconnect(mine, {}, two.network.now));
  two.network.deliver();
  EXPECT_EQ(two.network.last<wire::CmDreq>().remote_qp, 0x22U);
  two.server.expect(EventKind::kEstablished);
  two.server.expect(EventKind::kDisconnecting);
}

TEST(Connections, AnAnswerDoesNotInheritHopsAndMarks) {
  Two two;
  two.connect();
  auto datagram = two.client.manager.poll_transmit();
  ASSERT_TRUE(datagram);
  datagram->path.hop_limit = 1;
  datagram->path.traffic_class = 0x6B;
  two.server.manager.handle_datagram(datagram->path, datagram->mad, two.network.now);
  const ConnectionId theirs = two.server.expect(EventKind::kRequested).id;
  ASSERT_TRUE(two.server.manager.accept(theirs, reply_of(0x22), two.network.now));
  const auto answer = two.server.manager.poll_transmit();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->path.hop_limit, 64);
  EXPECT_EQ(answer->path.traffic_class & 3, 0);
}

/// Messages that would end an established connection, or bring it on.
std::vector<wire::CmMessage> about(ConnectionId from, ConnectionId to) {
  return {wire::CmRej{.local_id = from, .remote_id = to},
          wire::CmDreq{.local_id = from, .remote_id = to, .remote_qp = 0x22},
          wire::CmDrep{.local_id = from, .remote_id = to},
          wire::CmRtu{.local_id = from, .remote_id = to},
          wire::CmMra{.local_id = from, .remote_id = to, .subject = wire::CmSubject::kRep}};
}

TEST(Connections, OnlyThePeerIsHeard) {
  Two two;
  const auto [mine, theirs] = two.established();
  const ConnectionId half = two.up_to_reply(0x12, 0x23).second;
  const auto hear = [&](const wire::Address& from, const wire::CmMessage& message) {
    std::array<std::byte, wire::kMadSize> bytes{};
    wire::encode_cm({.message = message}, bytes);
    wire::Path path = two.client.to(two.server);
    path.source = from;
    two.server.manager.handle_datagram(path, bytes, two.network.now);
    EXPECT_TRUE(two.server.silent());
  };
  for (const ConnectionId to : {theirs, half}) {
    for (const wire::CmMessage& message : about(mine, to))
      hear(wire::Address::from_ipv4(0x0A4D0063), message);
    for (const ConnectionId from : {mine ^ 0x55U, ConnectionId{0}}) {
      for (const wire::CmMessage& message : about(from, to)) hear(two.client.address, message);
    }
  }
  EXPECT_EQ(two.server.manager.state(theirs), State::kEstablished);
  EXPECT_EQ(two.server.manager.state(half), State::kRepSent);
}

TEST(Connections, PatienceIsAskedForOnceATime) {
  Two two;
  const ConnectionId mine = two.connect();
  const Time began = two.network.now;
  two.network.lost = [](const wire::CmMad&) { return true; };
  std::array<std::byte, wire::kMadSize> bytes{};
  wire::encode_cm({.message = wire::CmMra{.local_id = 1, .remote_id = mine, .service_timeout = 31}},
                  bytes);
  two.network.deliver();
  while (two.client.manager.state(mine)) {
    for (int i = 0; i < 3; ++i)
      two.client.manager.handle_datagram(two.server.to(two.client), bytes, two.network.now);
    ASSERT_TRUE(two.network.step());
  }
  EXPECT_LE(two.network.now - began, 16 * (duration_of(24) + 2 * duration_of(16)));
}

TEST(Connections, AClientThatNobodyKnowsIsTold) {
  Two two;
  const auto [mine, theirs] = two.up_to_reply();
  static_cast<void>(theirs);
  End again(2, 99);
  Network network({&two.client, &again});
  ASSERT_TRUE(two.client.manager.confirm(mine, {}));
  network.deliver();
  EXPECT_EQ(two.client.expect(EventKind::kRejected).id, mine);
}

TEST(Connections, NoAlternatePathIsLoaded) {
  Two two;
  const auto [mine, theirs] = two.established();
  std::array<std::byte, wire::kMadSize> bytes{};
  wire::encode_cm({.message = wire::CmLap{.local_id = mine, .remote_id = theirs}}, bytes);
  two.server.manager.handle_datagram(two.client.to(two.server), bytes, two.network.now);
  two.network.deliver();
  EXPECT_EQ(two.network.last<wire::CmApr>().status, wire::CmApr::kUnsupported);
  EXPECT_EQ(two.network.last<wire::CmApr>().remote_id, mine);
}

TEST(Connections, WhatDoesNotFitTheStateIsInvalid) {
  Two two;
  const auto [mine, theirs] = two.established();
  const auto refused = [](const Result<void>& result) {
    return !result && result.error().condition == std::errc::invalid_argument;
  };
  EXPECT_TRUE(refused(two.client.manager.accept(mine, {}, two.network.now)));
  EXPECT_TRUE(refused(two.client.manager.confirm(mine, {})));
  EXPECT_TRUE(refused(two.server.manager.reject(theirs, {})));
  EXPECT_TRUE(refused(two.server.manager.accept(theirs ^ 1U, {}, two.network.now)));
  const std::array<std::byte, 221> much{};
  EXPECT_TRUE(refused(two.client.manager.disconnect(mine, much, two.network.now)));
  EXPECT_EQ(two.client.manager.state(mine), State::kEstablished);
}

TEST(Connections, WhoStopsListeningRefusesWhatItHasNotSeen) {
  Two two;
  two.connect(1);
  two.connect(2);
  two.network.deliver();
  const ConnectionId taken = two.server.expect(EventKind::kRequested).id;
  two.server.manager.handed_over(taken);
  two.server.manager.stop_listening(two.listener, two.network.now);
  two.network.deliver();
  two.client.expect(EventKind::kRejected);
  EXPECT_TRUE(two.client.silent());
  ASSERT_TRUE(two.server.manager.accept(taken, reply_of(0x22), two.network.now));
  two.network.deliver();
  two.client.expect(EventKind::kReplied);
  two.connect(3);
  two.network.deliver();
  EXPECT_EQ(std::get<wire::CmRej>(two.client.expect(EventKind::kRejected).message).reason,
            wire::RejectReason::kInvalidServiceId);
}

TEST(Connections, NumbersAreWithinTheirPrefix) {
  Two two({.id_prefix = 0x5C000000, .id_prefix_bits = 6});
  for (std::uint32_t qp = 1; qp < 100; ++qp) EXPECT_EQ(two.connect(qp) >> 26, 0x5C000000U >> 26);
}

}  // namespace
}  // namespace verbena::cm
