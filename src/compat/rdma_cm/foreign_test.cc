// SPDX-License-Identifier: Apache-2.0
//
// Ids at a kernel's own device, side by side with ours.
#include "compat/rdma_cm/foreign.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "compat/rdma_cm/test_channel.h"
#include "compat/rdma_cm/test_kernel.h"

namespace verbena::compat::rdma_cm {
namespace {

using namespace testing;

constexpr const char* kElsewhere = "198.51.100.77";

class Foreign : public WithChannel {
 protected:
  Foreign() {
    const std::scoped_lock lock(agent());
    agent().kernel = std::make_unique<FakeKernelDevice>(kernel_);
  }

  /// An event of the kernel's about its id, or about a request that came for it.
  void tell_of(std::uint32_t kernel_id, Happened what, std::uint32_t request = 0) {
    {
      const std::scoped_lock lock(agent());
      rdma_ucm_event_resp event{};
      event.uid = kernel_->uids.at(kernel_id);
      event.id = request != 0 ? request : kernel_id;
      event.event = static_cast<__u32>(what);
      event.status = 5;
      if (request != 0) kernel_->uids[request] = 0;
      kernel_->events.push_back(event);
    }
    agent().notify();
  }
  std::uint32_t bound_elsewhere(std::uint64_t uid) {
    const std::uint32_t id = channel_.create(uid);
    EXPECT_EQ(channel_.bind(id, ipv4(kElsewhere, 7471)), 0);
    return id;
  }
  int option(std::uint32_t id, std::uint32_t name, int value, std::uint32_t size) {
    rdma_ucm_set_option command{};
    command.optval = reinterpret_cast<std::uint64_t>(&value);
    command.id = id;
    command.level = RDMA_OPTION_ID;
    command.optname = name;
    command.optlen = size;
    return channel_.run(RDMA_USER_CM_CMD_SET_OPTION, command);
  }
  std::uint16_t port_of(std::uint32_t id) {
    const rdma_ucm_query_route_resp route = channel_.query_route(id);
    sockaddr_in address{};
    std::memcpy(&address, &route.src_addr, sizeof address);
    return ntohs(address.sin_port);
  }

  std::shared_ptr<FakeKernel> kernel_ = std::make_shared<FakeKernel>();
};

TEST_F(Foreign, AddressesOfOursNeverReachTheKernel) {
  const std::uint32_t id = channel_.create(1);
  EXPECT_EQ(channel_.bind(id, ipv4(kHere)), 0);
  const std::uint32_t other = channel_.create(2);
  EXPECT_EQ(channel_.resolve(other, ipv4(kThere, 1)), 0);
  channel_.expect(Happened::kAddressResolved);
  EXPECT_TRUE(kernel_->commands.empty());
}

TEST_F(Foreign, AnIdOfAnotherAddressIsTheKernelsWithItsOptions) {
  static_cast<void>(channel_.create(1));
  const std::uint32_t id = channel_.create(2);
  EXPECT_EQ(option(id, RDMA_OPTION_ID_REUSEADDR, 1, 4), 0);
  EXPECT_EQ(option(id, RDMA_OPTION_ID_TOS, 32, 1), 0);
  EXPECT_TRUE(kernel_->commands.empty()) << "it is undecided";
  EXPECT_EQ(channel_.bind(id, ipv4(kElsewhere, 7471)), 0);
  const auto created = kernel_->all(RDMA_USER_CM_CMD_CREATE_ID);
  ASSERT_EQ(created.size(), 1U);
  EXPECT_EQ(created[0].as<rdma_ucm_create_id>().ps, RDMA_PS_TCP);
  EXPECT_EQ(created[0].as<rdma_ucm_create_id>().qp_type, IBV_QPT_RC);
  const auto options = kernel_->all(RDMA_USER_CM_CMD_SET_OPTION);
  ASSERT_EQ(options.size(), 2U);
  EXPECT_EQ(options[0].as<rdma_ucm_set_option>().id, FakeKernel::kFirstId);
  EXPECT_EQ(options[1].as<rdma_ucm_set_option>().optname, RDMA_OPTION_ID_TOS);
  const auto bound = kernel_->all(RDMA_USER_CM_CMD_BIND);
  ASSERT_EQ(bound.size(), 1U);
  EXPECT_EQ(bound[0].as<rdma_ucm_bind>().id, FakeKernel::kFirstId);
  EXPECT_EQ(channel_.query_route(id).node_guid, 0x1234U);
  EXPECT_EQ(channel_.listen(id), 0);
  EXPECT_EQ(kernel_->all(RDMA_USER_CM_CMD_LISTEN)[0].as<rdma_ucm_listen>().id,
            FakeKernel::kFirstId);
  EXPECT_EQ(channel_.destroy(id), 0);
  EXPECT_TRUE(kernel_->uids.empty());
}

TEST_F(Foreign, WhatTheKernelRefusesIsUndecidedAgain) {
  kernel_->refusals[RDMA_USER_CM_CMD_BIND] = std::errc::no_such_device;
  const std::uint32_t id = channel_.create(1);
  EXPECT_EQ(channel_.bind(id, ipv4(kElsewhere)), ENODEV);
  EXPECT_TRUE(kernel_->uids.empty());
  EXPECT_EQ(channel_.bind(id, ipv4(kHere)), 0);
}

TEST_F(Foreign, EventsCarryOurNumbersAndAreCountedWhenTaken) {
  static_cast<void>(channel_.create(1));
  const std::uint32_t id = channel_.create(0xABCD);
  const sockaddr_in source = ipv4(kElsewhere);
  EXPECT_EQ(channel_.resolve(id, ipv4("198.51.100.78", 9), &source), 0);
  EXPECT_EQ(kernel_->all(RDMA_USER_CM_CMD_RESOLVE_IP)[0].as<rdma_ucm_resolve_ip>().id,
            FakeKernel::kFirstId);
  tell_of(FakeKernel::kFirstId, Happened::kAddressResolved);
  const rdma_ucm_event_resp event = channel_.expect(Happened::kAddressResolved);
  EXPECT_EQ(event.uid, 0xABCDU);
  EXPECT_EQ(event.id, id);
  EXPECT_EQ(event.status, 5U);
  tell_of(FakeKernel::kFirstId, Happened::kRouteResolved);
  EXPECT_TRUE(channel_.wait(0));
  std::uint32_t reported = 0;
  EXPECT_EQ(channel_.destroy(id, &reported), 0);
  EXPECT_EQ(reported, 1U);
  EXPECT_FALSE(channel_.wait(0));
}

TEST_F(Foreign, EventsOfNobodyAreDropped) {
  static_cast<void>(bound_elsewhere(1));
  for (const std::uint64_t uid : {std::uint64_t{0}, std::uint64_t{77}, ~std::uint64_t{0}}) {
    kernel_->uids[5] = uid;
    tell_of(5, Happened::kEstablished);
    tell_of(5, Happened::kMulticastJoin);
    tell_of(5, Happened::kConnectRequest, 6);
    kernel_->uids.erase(5);
  }
  EXPECT_FALSE(channel_.wait(0));
}

TEST_F(Foreign, RequestsBecomeIdsOfOurs) {
  const std::uint32_t listener = bound_elsewhere(1);
  EXPECT_EQ(channel_.listen(listener, 2), 0);
  tell_of(FakeKernel::kFirstId, Happened::kConnectRequest, 900);
  tell_of(FakeKernel::kFirstId, Happened::kConnectRequest, 901);
  tell_of(FakeKernel::kFirstId, Happened::kConnectRequest, 902);
  EXPECT_FALSE(kernel_->uids.contains(902)) << "two may wait";
  const rdma_ucm_event_resp event = channel_.expect(Happened::kConnectRequest);
  EXPECT_EQ(event.uid, 1U);
  EXPECT_NE(event.id, listener);
  EXPECT_EQ(channel_.accept(event.id, 42, parameters()), 0);
  EXPECT_EQ(kernel_->all(RDMA_USER_CM_CMD_ACCEPT)[0].as<rdma_ucm_accept>().id, 900U);
  tell_of(900, Happened::kEstablished);
  std::uint32_t reported = 0;
  EXPECT_EQ(channel_.destroy(listener, &reported), 0);
  EXPECT_EQ(reported, 1U);
  EXPECT_FALSE(kernel_->uids.contains(901)) << "nobody has heard of it";
  EXPECT_EQ(channel_.expect(Happened::kEstablished).uid, 42U);
  EXPECT_EQ(channel_.disconnect(event.id), 0);
  EXPECT_EQ(channel_.destroy(event.id, &reported), 0);
  EXPECT_EQ(reported, 1U);
  EXPECT_TRUE(kernel_->uids.empty());
}

TEST_F(Foreign, WhoListensAtAnyAddressDoesSoAtBoth) {
  const std::uint32_t id = channel_.create(1);
  EXPECT_EQ(channel_.bind(id, ipv4("0.0.0.0")), 0);
  EXPECT_EQ(channel_.listen(id), 0);
  const std::uint16_t port = port_of(id);
  sockaddr_in bound{};
  const auto command = kernel_->all(RDMA_USER_CM_CMD_BIND).at(0).as<rdma_ucm_bind>();
  std::memcpy(&bound, &command.addr, sizeof bound);
  EXPECT_EQ(ntohs(bound.sin_port), port);
  EXPECT_EQ(bound.sin_addr.s_addr, INADDR_ANY);
  EXPECT_EQ(kernel_->all(RDMA_USER_CM_CMD_LISTEN).size(), 1U);

  const std::uint32_t client = channel_.routed(2, port);
  EXPECT_EQ(channel_.connect(client), 0);
  const rdma_ucm_event_resp ours = channel_.expect(Happened::kConnectRequest);
  tell_of(FakeKernel::kFirstId, Happened::kConnectRequest, 900);
  const rdma_ucm_event_resp theirs = channel_.expect(Happened::kConnectRequest);
  EXPECT_EQ(channel_.reject(theirs.id, ""), 0);
  EXPECT_EQ(kernel_->all(RDMA_USER_CM_CMD_REJECT)[0].as<rdma_ucm_reject>().id, 900U);
  EXPECT_EQ(channel_.reject(ours.id, ""), 0);
  EXPECT_EQ(channel_.expect(Happened::kRejected).uid, 2U);
  std::uint32_t reported = 0;
  EXPECT_EQ(channel_.destroy(id, &reported), 0);
  EXPECT_EQ(reported, 2U);
}

TEST_F(Foreign, APortThatTheKernelHasIsInUse) {
  kernel_->refusals[RDMA_USER_CM_CMD_BIND] = std::errc::address_in_use;
  const std::uint32_t id = channel_.create(1);
  EXPECT_EQ(channel_.bind(id, ipv4("0.0.0.0", 7473)), EADDRINUSE);
  EXPECT_EQ(channel_.bind(id, ipv4("0.0.0.0")), EADDRINUSE) << "whichever it is";
  EXPECT_TRUE(kernel_->uids.empty());
  kernel_->refusals.clear();
  EXPECT_EQ(channel_.bind(id, ipv4("0.0.0.0", 7473)), 0) << "it was given back";
  kernel_->refusals[RDMA_USER_CM_CMD_LISTEN] = std::errc::address_in_use;
  EXPECT_EQ(channel_.listen(id), EADDRINUSE);
  kernel_->refusals.clear();
  EXPECT_EQ(channel_.listen(id), 0);
}

TEST_F(Foreign, WithoutTheKernelAnyAddressIsOurs) {
  kernel_->refusals[RDMA_USER_CM_CMD_BIND] = std::errc::permission_denied;
  const std::uint32_t id = channel_.create(1);
  EXPECT_EQ(channel_.bind(id, ipv4("0.0.0.0", 7474)), 0);
  EXPECT_TRUE(kernel_->uids.empty());
  EXPECT_EQ(channel_.listen(id), 0);
  EXPECT_TRUE(kernel_->all(RDMA_USER_CM_CMD_LISTEN).empty());
}

TEST_F(Foreign, WhoIsBoundToAnyDecidesByTheDestination) {
  const std::uint32_t ours = channel_.create(1);
  EXPECT_EQ(channel_.bind(ours, ipv4("0.0.0.0")), 0);
  EXPECT_EQ(kernel_->uids.size(), 1U);
  EXPECT_EQ(channel_.resolve(ours, ipv4(kThere, 1)), 0);
  EXPECT_TRUE(kernel_->uids.empty());
  channel_.expect(Happened::kAddressResolved);
  EXPECT_EQ(channel_.resolve_route(ours), 0);
  channel_.expect(Happened::kRouteResolved);
}

TEST_F(Foreign, GroupsHaveOurNumbersToo) {
  const std::uint32_t id = bound_elsewhere(1);
  rdma_ucm_join_ip_mcast join{};
  join.uid = 77;
  join.id = id;
  rdma_ucm_create_id_resp joined{.id = 1000};
  EXPECT_EQ(channel_.ask(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join, joined), 0);
  EXPECT_EQ(joined.id, 0U);
  tell_of(FakeKernel::kFirstId + 1, Happened::kMulticastJoin);
  const rdma_ucm_event_resp event = channel_.expect(Happened::kMulticastJoin);
  EXPECT_EQ(event.uid, 77U);
  EXPECT_EQ(event.id, joined.id);
  rdma_ucm_destroy_id leave{};
  leave.id = joined.id;
  rdma_ucm_destroy_id_resp left{};
  EXPECT_EQ(channel_.ask(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, left), 0);
  EXPECT_EQ(left.events_reported, 1U);
  EXPECT_EQ(kernel_->uids.size(), 1U);
}

TEST_F(Foreign, MigrationIsOursAlone) {
  const std::uint32_t id = bound_elsewhere(1);
  tell_of(FakeKernel::kFirstId, Happened::kAddressChange);
  Channel other;
  rdma_ucm_migrate_id command{};
  command.id = id;
  command.fd = static_cast<__u32>(channel_.fd);
  rdma_ucm_migrate_resp response{};
  EXPECT_EQ(other.ask(RDMA_USER_CM_CMD_MIGRATE_ID, command, response), 0);
  EXPECT_EQ(other.expect(Happened::kAddressChange).id, id);
  tell_of(FakeKernel::kFirstId, Happened::kAddressChange);
  EXPECT_FALSE(channel_.wait(0));
  EXPECT_EQ(other.expect(Happened::kAddressChange).uid, 1U);
  EXPECT_EQ(channel_.listen(id), EINVAL);
  EXPECT_EQ(other.listen(id), 0);
  other.close();
  EXPECT_TRUE(kernel_->uids.empty());
}

TEST_F(Foreign, ManyEventsAreAllTaken) {
  static_cast<void>(bound_elsewhere(1));
  rdma_ucm_event_resp event{};
  event.uid = kernel_->uids.at(FakeKernel::kFirstId);
  event.id = FakeKernel::kFirstId;
  event.event = static_cast<__u32>(Happened::kAddressChange);
  kernel_->events.assign(1000, event);
  agent().notify();
  for (int i = 0; i < 1000; ++i) channel_.expect(Happened::kAddressChange);
  EXPECT_FALSE(channel_.wait(0));
}

TEST_F(Foreign, CommandsThatAreTooShortAreRefused) {
  const std::uint32_t id = bound_elsewhere(1);
  const std::size_t before = kernel_->commands.size();
  EXPECT_EQ(channel_.run(RDMA_USER_CM_CMD_ACCEPT, rdma_ucm_listen{.id = id, .backlog = 0}), EINVAL);
  EXPECT_EQ(channel_.run(RDMA_USER_CM_CMD_QUERY, __u64{id}), EINVAL);
  EXPECT_EQ(kernel_->commands.size(), before);
}

TEST_F(Foreign, AForkedChildLeavesThemAlone) {
  const std::uint32_t id = bound_elsewhere(1);
  const pid_t child = ::fork();
  if (child == 0) {
    close_rdma_cm(channel_.fd);
    const std::scoped_lock lock(agent());
    ::_exit(agent().kernel == nullptr && kernel_->uids.size() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(channel_.listen(id), 0);
}

TEST_F(Foreign, TheKernelsDeviceIsClosedWithTheLastOfOurs) {
  static_cast<void>(bound_elsewhere(1));
  channel_.close();
  const std::scoped_lock lock(agent());
  EXPECT_EQ(agent().kernel, nullptr);
  EXPECT_TRUE(kernel_->uids.empty());
}

}  // namespace
}  // namespace verbena::compat::rdma_cm
