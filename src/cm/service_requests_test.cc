// SPDX-License-Identifier: Apache-2.0
#include "cm/service_requests.h"

#include <gtest/gtest.h>

#include "cm/test_network.h"

namespace verbena::cm {
namespace {

using namespace test;

wire::CmSidrReq sidr_request(std::uint64_t service = kService) {
  wire::CmSidrReq request{.service_id = service};
  request.private_data[1] = std::byte{7};
  return request;
}

ConnectionId resolve(Two& two, std::uint64_t service = kService) {
  const wire::Path path = two.client.to(two.server);
  return two.client.manager.resolve(path, sidr_request(service), two.network.now).value();
}

TEST(ServiceRequests, TellTheQueuePairAndItsKey) {
  Two two;
  const ConnectionId mine = resolve(two);
  two.network.deliver();
  const Event asked = two.server.expect(EventKind::kResolveRequested);
  EXPECT_EQ(asked.listener, two.listener);
  EXPECT_EQ(std::get<wire::CmSidrReq>(asked.message).private_data[1], std::byte{7});
  wire::CmSidrRep answer{.qp = 0x33, .qkey = 0x01234567};
  answer.private_data[2] = std::byte{8};
  ASSERT_TRUE(two.server.manager.answer(asked.id, answer, two.network.now));
  two.network.deliver();
  const Event resolved = two.client.expect(EventKind::kResolved);
  EXPECT_EQ(resolved.id, mine);
  const auto& reply = std::get<wire::CmSidrRep>(resolved.message);
  EXPECT_EQ(reply.status, wire::SidrStatus::kValid);
  EXPECT_EQ(reply.qp, 0x33U);
  EXPECT_EQ(reply.qkey, 0x01234567U);
  EXPECT_EQ(reply.service_id, kService);
  EXPECT_EQ(reply.private_data[2], std::byte{8});
  EXPECT_EQ(two.client.manager.size(), 0U);
  two.expect_nothing_left();
  EXPECT_TRUE(two.server.silent());
}

TEST(ServiceRequests, ALostAnswerGoesAgain) {
  Two two;
  bool once = false;
  two.network.lost = [&](const wire::CmMad& mad) {
    return std::holds_alternative<wire::CmSidrRep>(mad.message) && !std::exchange(once, true);
  };
  resolve(two);
  two.network.deliver();
  const ConnectionId theirs = two.server.expect(EventKind::kResolveRequested).id;
  ASSERT_TRUE(two.server.manager.answer(theirs, {.qp = 0x33}, two.network.now));
  two.network.run_out();
  EXPECT_EQ(std::get<wire::CmSidrRep>(two.client.expect(EventKind::kResolved).message).qp, 0x33U);
  EXPECT_TRUE(two.server.silent()) << "the program is asked once";
  EXPECT_EQ(two.server.manager.size(), 0U);
}

TEST(ServiceRequests, WhileTheProgramThinksARepeatedOneIsNotANewOne) {
  Two two;
  resolve(two);
  two.network.deliver();
  two.server.expect(EventKind::kResolveRequested);
  ASSERT_TRUE(two.network.step());
  EXPECT_EQ(two.network.count<wire::CmSidrReq>(), 2U);
  EXPECT_TRUE(two.server.silent());
}

TEST(ServiceRequests, NobodyAnswers) {
  Two two;
  two.network.lost = [](const wire::CmMad&) { return true; };
  const ConnectionId mine = resolve(two);
  two.expect_nothing_left();
  EXPECT_EQ(two.client.expect(EventKind::kUnresolved).id, mine);
  EXPECT_EQ(two.network.count<wire::CmSidrReq>(), 16U + kEarly);
}

TEST(ServiceRequests, NobodyListens) {
  Two two;
  resolve(two, kService + 1);
  two.network.deliver();
  const Event event = two.client.expect(EventKind::kResolved);
  EXPECT_EQ(std::get<wire::CmSidrRep>(event.message).status, wire::SidrStatus::kInvalidServiceId);
}

TEST(ServiceRequests, OnlyThePeerAnswers) {
  Two two;
  const ConnectionId mine = resolve(two);
  std::array<std::byte, wire::kMadSize> bytes{};
  wire::encode_cm({.message = wire::CmSidrRep{.request_id = mine, .qp = 1}}, bytes);
  wire::Path path = two.server.to(two.client);
  path.source = wire::Address::from_ipv4(0x0A4D0063);
  two.client.manager.handle_datagram(path, bytes, two.network.now);
  EXPECT_TRUE(two.client.silent());
  EXPECT_EQ(two.client.manager.counters().unexpected, 1U);
}

TEST(ServiceRequests, TheBacklogBoundsThem) {
  Two two;
  for (int i = 0; i < 20; ++i) resolve(two);
  two.network.deliver();
  EXPECT_EQ(two.server.manager.size(), 16U);
  EXPECT_EQ(two.server.manager.counters().over_backlog, 4U);
}

TEST(ServiceRequests, OfManyAnswersTheOldestAreForgotten) {
  Two two({.request_burst = 1'000'000});
  for (int i = 0; i < 3000; ++i) {
    resolve(two);
    two.network.deliver();
    const ConnectionId theirs = two.server.expect(EventKind::kResolveRequested).id;
    ASSERT_TRUE(two.server.manager.answer(theirs, {.qp = 0x33}, two.network.now));
  }
  EXPECT_EQ(two.server.manager.size(), 1024U);
  two.network.deliver();
  two.expect_nothing_left();
}

TEST(ServiceRequests, WhoTakesConnectionsAloneHasNoAnswer) {
  Two two;
  ASSERT_TRUE(two.server.manager.listen({.service_id = kService + 1}));
  resolve(two, kService + 1);
  two.network.deliver();
  const Event event = two.client.expect(EventKind::kResolved);
  EXPECT_EQ(std::get<wire::CmSidrRep>(event.message).status, wire::SidrStatus::kInvalidServiceId);
}

TEST(ServiceRequests, AreAnsweredOnce) {
  Two two;
  const ConnectionId mine = resolve(two);
  two.network.deliver();
  const ConnectionId theirs = two.server.expect(EventKind::kResolveRequested).id;
  EXPECT_FALSE(two.client.manager.answer(mine, {}, two.network.now));
  EXPECT_TRUE(two.server.manager.answer(theirs, {}, two.network.now));
  const auto again = two.server.manager.answer(theirs, {}, two.network.now);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().condition, std::errc::invalid_argument);
}

TEST(ServiceRequests, WhoStopsListeningRefuses) {
  Two two;
  resolve(two);
  two.network.deliver();
  two.server.expect(EventKind::kResolveRequested);
  two.server.manager.stop_listening(two.listener, two.network.now);
  two.network.deliver();
  const Event event = two.client.expect(EventKind::kResolved);
  EXPECT_EQ(std::get<wire::CmSidrRep>(event.message).status, wire::SidrStatus::kRejected);
  two.expect_nothing_left();
}

TEST(ServiceRequests, OursMayBeForgotten) {
  Two two;
  const ConnectionId mine = resolve(two);
  two.client.manager.abandon(mine, two.network.now);
  EXPECT_EQ(two.client.manager.size(), 0U);
  EXPECT_EQ(two.client.manager.poll_timeout(), Time::max());
}

}  // namespace
}  // namespace verbena::cm
