// SPDX-License-Identifier: Apache-2.0
//
// What ids tell of themselves and take as options, and what becomes of them with their devices.
#include "compat/rdma_cm/agent.h"

#include <gtest/gtest.h>

#include "compat/rdma_cm/route.h"
#include "compat/rdma_cm/test_channel.h"

namespace verbena::compat::rdma_cm {
namespace {

using namespace testing;

class Agents : public WithListener {
 protected:
  int query(std::uint32_t id, std::uint32_t option, auto& response) {
    rdma_ucm_query command{};
    command.id = id;
    command.option = option;
    return client_.ask(RDMA_USER_CM_CMD_QUERY, command, response);
  }
  int set_path(std::uint32_t id, const ib_path_rec_data& path, std::uint32_t size = sizeof path) {
    rdma_ucm_set_option command{};
    command.optval = reinterpret_cast<std::uint64_t>(&path);
    command.id = id;
    command.level = RDMA_OPTION_IB;
    command.optname = RDMA_OPTION_IB_PATH;
    command.optlen = size;
    return client_.run(RDMA_USER_CM_CMD_SET_OPTION, command);
  }
  /// The services of the device at that address, once somebody is bound to it.
  static nic::GeneralServices& services(const char* at) {
    for (const auto& port : agent().ports) {
      if (port->device->config.address == wire::Address::from_string(at).value())
        return *port->services;
    }
    throw std::logic_error("nobody is bound there");
  }
};

struct Paths {
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
  std::array<ib_path_rec_data, 6> records{};
};

TEST_F(Agents, PathsAreToldAndTakenInTheSameForm) {
  const std::uint32_t first = client_.routed(0x20, port_);
  Paths paths;
  ASSERT_EQ(query(first, RDMA_USER_CM_QUERY_PATH, paths), 0);
  ASSERT_EQ(paths.count, 1U);
  EXPECT_EQ(client_.query_route(first).ib_route[0].mtu, IBV_MTU_4096);

  const std::uint32_t second = client_.create(0x21);
  const sockaddr_in source = ipv4(kHere);
  EXPECT_EQ(set_path(second, paths.records[0]), EINVAL) << "no address yet";
  EXPECT_EQ(client_.resolve(second, ipv4(kThere, port_), &source), 0);
  client_.expect(Happened::kAddressResolved);
  EXPECT_EQ(set_path(second, paths.records[0], 70), EINVAL);
  ib_path_rec_data other = paths.records[0];
  other.flags = IB_PATH_PRIMARY;
  EXPECT_EQ(set_path(second, other), EINVAL);
  EXPECT_EQ(set_path(second, paths.records[0]), 0);
  EXPECT_EQ(client_.expect(Happened::kRouteResolved).id, second);
  const rdma_ucm_query_route_resp one = client_.query_route(first);
  const rdma_ucm_query_route_resp same = client_.query_route(second);
  EXPECT_EQ(std::memcmp(&one.ib_route[0], &same.ib_route[0], sizeof one.ib_route[0]), 0);
}

TEST_F(Agents, AddressesAreToldInEachForm) {
  const std::uint32_t id = client_.routed(0x20, port_);
  rdma_ucm_query_addr_resp addresses{};
  ASSERT_EQ(query(id, RDMA_USER_CM_QUERY_ADDR, addresses), 0);
  EXPECT_EQ(addresses.node_guid, htobe64(0x0256524200000091));
  EXPECT_EQ(addresses.src_size, sizeof(sockaddr_in));
  EXPECT_EQ(addresses.pkey, 0xFFFF);
  rdma_ucm_query_addr_resp gids{};
  ASSERT_EQ(query(id, RDMA_USER_CM_QUERY_GID, gids), 0);
  EXPECT_EQ(gids.src_size, 48);
  rdma_ucm_query_addr_resp nothing{};
  EXPECT_EQ(query(id, 99, nothing), ENOSYS);
}

TEST_F(Agents, ServiceTypeIsTheTrafficClass) {
  const std::uint32_t id = client_.create(0x20);
  std::uint8_t type = 0x68;
  rdma_ucm_set_option command{};
  command.optval = reinterpret_cast<std::uint64_t>(&type);
  command.id = id;
  command.optname = RDMA_OPTION_ID_TOS;
  command.optlen = 1;
  EXPECT_EQ(client_.run(RDMA_USER_CM_CMD_SET_OPTION, command), 0);
  const sockaddr_in source = ipv4(kHere);
  EXPECT_EQ(client_.resolve(id, ipv4(kThere, port_), &source), 0);
  client_.expect(Happened::kAddressResolved);
  EXPECT_EQ(client_.resolve_route(id), 0);
  client_.expect(Happened::kRouteResolved);
  EXPECT_EQ(client_.connect(id), 0);
  const std::uint32_t peer = server_.expect(Happened::kConnectRequest).id;
  ib_uverbs_qp_attr attributes{};
  EXPECT_EQ(server_.attributes(peer, IBV_QPS_RTR, attributes), 0);
  EXPECT_EQ(attributes.ah_attr.grh.traffic_class, 0x68);
}

TEST_F(Agents, APeerWithoutAnAckTimeoutMakesNoEndlessOne) {
  client_.routed(0x20, port_);
  const wire::Path path{.source = wire::Address::from_string(kHere).value(),
                        .destination = wire::Address::from_string(kThere).value()};
  wire::CmReq request{
      .service_id = wire::service_id(wire::PortSpace::kTcp, port_), .local_qp = 7, .path_mtu = 3};
  const wire::CmAddressHeader header{.source = path.source, .destination = path.destination};
  header.encode(request.private_data.data());
  ASSERT_TRUE(services(kHere).ask(
      [&](cm::Manager& manager, Time now) { return manager.connect(path, request, now); }));
  const std::uint32_t peer = server_.expect(Happened::kConnectRequest).id;
  ib_uverbs_qp_attr attributes{};
  ASSERT_EQ(server_.attributes(peer, IBV_QPS_RTS, attributes), 0);
  EXPECT_EQ(attributes.timeout, 1);
}

TEST_F(Agents, WhoseAddressIsTakenAwayIsTold) {
  const wire::Address second = wire::Address::from_string("127.91.0.3").value();
  nic::GeneralServices& there = services(kThere);
  nic::PortState state = there.port();
  state.gids[1] = second;
  there.set_port(state);
  const std::uint32_t id = server_.create(0x30);
  {
    const std::scoped_lock lock(agent());
    Id& bound = **find_any_id(agent(), *agent().files.at(server_.fd), id);
    bound.port = agent().ports.front().get();
    bound.source = {.family = AF_INET, .address = second};
  }
  state.gids[1] = {};
  there.set_port(state);
  EXPECT_EQ(server_.expect(Happened::kAddressChange).uid, 0x30U);
  EXPECT_FALSE(server_.wait(0)) << "the listener is at another address";
}

TEST_F(Agents, BrokenDeviceIsRemoved) {
  const std::uint32_t client = client_.routed(0x20, port_);
  EXPECT_EQ(client_.connect(client), 0);
  EXPECT_TRUE(server_.wait(30'000));
  services(kThere).raise_fatal();
  EXPECT_EQ(server_.expect(Happened::kDeviceRemoval).uid, 0x10U);
  EXPECT_FALSE(server_.wait(0)) << "of the request nobody has heard";
  EXPECT_EQ(server_.listen(listener_), EIO);
  EXPECT_EQ(server_.destroy(listener_), 0);
}

TEST(AckTimeouts, AreThoseOfTheKernel) {
  EXPECT_EQ(ack_timeout(15, 16), 17);
  EXPECT_EQ(ack_timeout(15, 14), 16);
  EXPECT_EQ(ack_timeout(15, 15), 17);
  EXPECT_EQ(ack_timeout(15, 13), 16);
  EXPECT_EQ(ack_timeout(15, 2), 15);
  EXPECT_EQ(ack_timeout(31, 31), 31);
}

}  // namespace
}  // namespace verbena::compat::rdma_cm
