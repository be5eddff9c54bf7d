// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <utility>

#include "verbena/cm_id.h"
#include "verbs/cm/test_ends.h"

namespace verbena::verbs::cm {
namespace {

using namespace testing;

TEST(EventChannel, WaitsOrNot) {
  const auto channel = must(event_channel::create());
  EXPECT_GE(channel.fd(), 0);
  EXPECT_TRUE(channel.try_get_event().error().would_block());
  must(channel.set_blocking(false));
  EXPECT_TRUE(channel.get_event().error().would_block());
  EXPECT_FALSE(must(channel.wait(1ms)));
}

TEST(EventChannel, OutlivesItsHandleAndIsHeldByIds) {
  auto channel = std::make_unique<event_channel>(must(event_channel::create()));
  auto one = must(id::create(*channel));
  EXPECT_EQ(channel->close().error(), std::errc::device_or_resource_busy);
  channel.reset();
  must(one.bind(at(kServer)));
  EXPECT_NE(one.local_addr().port(), 0);
  must(one.close());
}

TEST(Id, EachHasANumberOfItsOwn) {
  const auto channel = must(event_channel::create());
  const auto one = must(id::create(channel));
  const auto other = must(id::create(channel, port_space::udp));
  EXPECT_NE(one.number(), other.number());
  EXPECT_EQ(one.space(), port_space::tcp);
  EXPECT_EQ(other.space(), port_space::udp);
}

TEST(Id, TakesOptions) {
  const auto channel = must(event_channel::create());
  auto one = must(id::create(channel));
  must(one.set_type_of_service(0x28));
  must(one.set_reuse_address(true));
  must(one.set_ack_timeout(ack_timeout::from(100ms)));
  auto six = must(id::create(channel));
  must(six.set_ipv6_only(true));
  must(one.bind(at(kServer)));
  auto other = must(id::create(channel));
  must(other.set_reuse_address(true));
  must(other.bind(one.local_addr()));
}

TEST(Id, AMovedFromOneReports) {
  const auto channel = must(event_channel::create());
  auto one = must(id::create(channel));
  auto moved = std::move(one);
  // NOLINTBEGIN(bugprone-use-after-move): it is what is tested
  EXPECT_EQ(one.number(), 0U);
  EXPECT_FALSE(one.local_addr());
  EXPECT_FALSE(one.peer_addr());
  EXPECT_EQ(one.bind(at(kServer)).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.resolve_address(at(kServer), 1ms).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.resolve_route(1ms).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.connect().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.establish().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.listen(1).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.accept().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.reject().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.disconnect().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.notify(IBV_EVENT_COMM_EST).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.join(at("239.1.1.1")).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.leave(at("239.1.1.1")).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.migrate(channel).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.context().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.route().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.attributes_for(qp_state::init).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(one.set_reuse_address(true).error(), std::errc::bad_file_descriptor);
  // NOLINTEND(bugprone-use-after-move)
  auto empty = must(event_channel::create());
  const auto full = std::move(empty);
  // NOLINTNEXTLINE(bugprone-use-after-move): likewise
  EXPECT_EQ(id::create(empty).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(empty.get_event().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(empty.fd(), -1);
}

/// Resolved by its own calls.
struct Resolved {
  explicit Resolved(const socket_address& to, port_space space = port_space::tcp)
      : one(must(id::create(channel, space))) {
    must(one.resolve_address(to, kPatience, at(kClient)));
    expect(event_type::address_resolved);
    must(one.resolve_route(kPatience));
    expect(event_type::route_resolved);
  }
  void expect(event_type type) const {
    const event happened = must(channel.get_event());
    EXPECT_EQ(happened.type(), type) << name_of(happened.type());
    EXPECT_TRUE(happened.is_of(one));
    EXPECT_EQ(happened.is_failure(), false);
  }
  event_channel channel = must(event_channel::create());
  id one;
};

TEST(Id, ResolvedItHasADeviceAndARoute) {
  const auto server = must(listener::bind(at(kServer)));
  const Resolved end(server.local_addr());
  const route way = must(end.one.route());
  EXPECT_EQ(way.of, verbs::port{1});
  EXPECT_EQ(way.source.to_string(), kClient);
  EXPECT_EQ(way.destination.to_string(), kServer);
  EXPECT_FALSE(way.paths.empty());
  const auto device = must(end.one.context());
  const auto gid_there = must(device.routable_gid());
  EXPECT_EQ(gid_there.id, at(kClient).host());
  const auto wanted = must(end.one.attributes_for(qp_state::init));
  EXPECT_NE(wanted.mask & IBV_QP_PORT, 0);
}

TEST(Id, ItsContextOutlivesIt) {
  std::optional<context> device;
  {
    const auto server = must(listener::bind(at(kServer)));
    device = must(server.context());
  }
  const Things things(*device);
  EXPECT_TRUE(things.memory);
  EXPECT_EQ(context::borrow(nullptr).error(), std::errc::invalid_argument);
}

TEST(Id, QueuePairsAreOfItsContextAndItsService) {
  const auto server = must(listener::bind(at(kServer)));
  Resolved end(server.local_addr());
  const Things things(must(end.one.context()));
  const auto opened = must(context::open("vrb1"));
  const Things others(opened);
  const auto wrong = end.one.create_qp<rc>(others.pd, {.send_cq = others.cq, .recv_cq = others.cq});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error(), std::errc::invalid_argument);
  EXPECT_NE(wrong.error().context().find("of another context"), std::string_view::npos);
  const auto datagram =
      end.one.create_qp<ud>(things.pd, {.send_cq = things.cq, .recv_cq = things.cq});
  ASSERT_FALSE(datagram);
  EXPECT_NE(datagram.error().context().find("UDP space"), std::string_view::npos);
  {
    const auto qp =
        must(end.one.create_qp<rc>(things.pd, {.send_cq = things.cq, .recv_cq = things.cq}));
    EXPECT_EQ(qp.state(), qp_state::init);
    EXPECT_TRUE(end.one.made(qp));
    const auto again =
        end.one.create_qp<rc>(things.pd, {.send_cq = things.cq, .recv_cq = things.cq});
    ASSERT_FALSE(again);
    EXPECT_NE(again.error().context().find("has a queue pair already"), std::string_view::npos);
    EXPECT_EQ(end.one.close().error(), std::errc::device_or_resource_busy);
  }
  must(end.one.close());
}

TEST(Id, DestroyedItWaitsForNoEvent) {
  const auto server = must(listener::bind(at(kServer)));
  const auto channel = must(event_channel::create());
  std::optional<event> kept;
  {
    auto one = must(id::create(channel));
    must(one.resolve_address(server.local_addr(), kPatience));
    kept = must(channel.get_event());
    must(one.resolve_route(kPatience));
    // One event is kept, another one waits.
  }
  EXPECT_EQ(kept->type(), event_type::address_resolved);
  const auto next = must(id::create(channel));
  EXPECT_FALSE(kept->is_of(next));
}

TEST(Id, OnesThatCHasMadeAreWorkedWith) {
  const auto server = must(listener::bind(at(kServer)));
  rdma_event_channel* const c_channel = rdma_create_event_channel();
  ASSERT_NE(c_channel, nullptr);
  int mark = 0;
  rdma_cm_id* made = nullptr;
  ASSERT_EQ(rdma_create_id(c_channel, &made, &mark, RDMA_PS_TCP), 0);
  {
    const auto channel = must(event_channel::adopt(c_channel, ownership::borrowed));
    auto one = must(id::adopt(made, channel, ownership::borrowed));
    must(one.resolve_address(server.local_addr(), kPatience));
    const event happened = must(channel.get_event());
    EXPECT_EQ(happened.type(), event_type::address_resolved);
    EXPECT_TRUE(happened.is_of(one));
    EXPECT_FALSE(must(one.context()).name().empty());
    const auto other = must(event_channel::create());
    EXPECT_EQ(id::adopt(made, other, ownership::borrowed).error(), std::errc::invalid_argument);
  }
  EXPECT_EQ(made->context, &mark) << "its borrower gives it back";
  const auto channel = must(event_channel::adopt(c_channel, ownership::owned));
  auto owned = must(id::adopt(made, channel, ownership::owned));
  EXPECT_EQ(owned.peer_addr(), server.local_addr());
  EXPECT_EQ(id::adopt(nullptr, channel, ownership::owned).error(), std::errc::invalid_argument);
  EXPECT_EQ(event_channel::adopt(nullptr, ownership::owned).error(), std::errc::invalid_argument);
  must(owned.close());
}

TEST(Id, EventsHaveNamesAndFailuresText) {
  EXPECT_EQ(name_of(event_type::established), "established");
  EXPECT_EQ(name_of(event_type::timewait_exit), "timewait exit");
  EXPECT_EQ(name_of(static_cast<event_type>(99)), "unknown");
}

}  // namespace
}  // namespace verbena::verbs::cm
