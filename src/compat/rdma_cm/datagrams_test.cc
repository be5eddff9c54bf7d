// SPDX-License-Identifier: Apache-2.0
//
// Datagram services and multicast groups through the device's file.
#include "compat/rdma_cm/datagrams.h"

#include <gtest/gtest.h>

#include <string>

#include "compat/rdma_cm/test_channel.h"

namespace verbena::compat::rdma_cm {
namespace {

using namespace testing;

constexpr std::uint32_t kQueueKey = 0x01234567;

class Datagrams : public WithListener {
 protected:
  Datagrams() : WithListener(RDMA_PS_UDP) {}
};

TEST_F(Datagrams, ServiceTellsItsQueuePair) {
  const std::uint32_t client = client_.routed(0x20, port_, RDMA_PS_UDP);
  ib_uverbs_qp_attr attributes{};
  EXPECT_EQ(client_.attributes(client, IBV_QPS_INIT, attributes), 0);
  EXPECT_EQ(attributes.qkey, kQueueKey);
  EXPECT_EQ(attributes.qp_attr_mask,
            static_cast<unsigned>(IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
  EXPECT_EQ(client_.connect(client, parameters(0x11, std::string(181, 'x'))), EINVAL);
  EXPECT_EQ(client_.connect(client, parameters(0x11, "hello")), 0);
  const rdma_ucm_event_resp request = server_.expect(Happened::kConnectRequest);
  EXPECT_EQ(request.uid, 0x10U);
  EXPECT_EQ(request.param.ud.private_data_len, 216 - 36);
  EXPECT_EQ(request.param.ud.private_data[0], 'h');
  EXPECT_NE(server_.query_route(request.id).node_guid, 0U);

  EXPECT_EQ(server_.accept(request.id, 0x30, parameters(0x456, "welcome"),
                           {.vendor_id = 5, .attr_mod = 6}),
            0);
  const rdma_ucm_event_resp established = client_.expect(Happened::kEstablished);
  EXPECT_EQ(established.uid, 0x20U);
  EXPECT_EQ(established.ece.vendor_id, 0U) << "as from the kernel";
  EXPECT_EQ(established.param.ud.qp_num, 0x456U);
  EXPECT_EQ(established.param.ud.qkey, kQueueKey);
  EXPECT_EQ(established.param.ud.private_data_len, 136);
  EXPECT_EQ(established.param.ud.private_data[0], 'w');
  EXPECT_EQ(established.param.ud.ah_attr.is_global, 1);
  EXPECT_EQ(established.param.ud.ah_attr.grh.dgid[15], 2);
  EXPECT_EQ(server_.destroy(request.id), 0);
}

TEST_F(Datagrams, RefusedServiceIsUnreachable) {
  const std::uint32_t client = client_.routed(0x20, port_, RDMA_PS_UDP);
  EXPECT_EQ(client_.connect(client), 0);
  const std::uint32_t server = server_.expect(Happened::kConnectRequest).id;
  EXPECT_EQ(server_.reject(server, "no"), 0);
  EXPECT_EQ(client_.expect(Happened::kUnreachable).status, 2U);
}

TEST_F(Datagrams, ConnectionsAreNotForDatagramServices) {
  const std::uint32_t client = client_.routed(0x20, port_, RDMA_PS_TCP);
  EXPECT_EQ(client_.connect(client), 0);
  EXPECT_EQ(client_.expect(Happened::kRejected).status, 8U);
}

TEST_F(Datagrams, GroupsAreJoinedAndLeft) {
  const std::uint32_t id = client_.create(0x20, RDMA_PS_UDP, IBV_QPT_UD);
  const auto join = [&](const char* group, std::uint32_t* number) {
    rdma_ucm_join_ip_mcast command{};
    command.uid = 0x77;
    command.id = id;
    put(command.addr, ipv4(group));
    rdma_ucm_create_id_resp response{};
    const int status = client_.ask(RDMA_USER_CM_CMD_JOIN_IP_MCAST, command, response);
    *number = response.id;
    return status;
  };
  const auto leave = [&](std::uint32_t number) {
    rdma_ucm_destroy_id command{};
    command.id = number;
    rdma_ucm_destroy_id_resp response{};
    const int status = client_.ask(RDMA_USER_CM_CMD_LEAVE_MCAST, command, response);
    return status != 0 ? -status : static_cast<int>(response.events_reported);
  };
  std::uint32_t group = 0;
  EXPECT_EQ(join("239.1.2.3", &group), EINVAL) << "no device yet";
  EXPECT_EQ(client_.bind(id, ipv4(kHere)), 0);
  EXPECT_EQ(join("0.0.0.0", &group), EINVAL);
  EXPECT_EQ(join("239.1.2.3", &group), 0);
  const rdma_ucm_event_resp event = client_.expect(Happened::kMulticastJoin);
  EXPECT_EQ(event.uid, 0x77U);
  EXPECT_EQ(event.id, group);
  EXPECT_EQ(event.param.ud.qp_num, 0xFFFFFFU);
  EXPECT_EQ(event.param.ud.qkey, kQueueKey);
  EXPECT_EQ(event.param.ud.ah_attr.grh.dgid[11], 0xFF);
  EXPECT_EQ(event.param.ud.ah_attr.grh.dgid[12], 239);
  EXPECT_EQ(leave(group + 1), -ENOENT);
  EXPECT_EQ(leave(group), 1);
  EXPECT_EQ(leave(group), -ENOENT);

  EXPECT_EQ(join("239.1.2.4", &group), 0);
  EXPECT_EQ(leave(group), 0) << "nobody took the event";
  EXPECT_FALSE(client_.wait(0));
  EXPECT_EQ(join("239.1.2.5", &group), 0);
  std::uint32_t reported = 0;
  EXPECT_EQ(client_.destroy(id, &reported), 0);
  EXPECT_EQ(reported, 1U);
  EXPECT_EQ(leave(group), -ENOENT);
}

TEST_F(Datagrams, GroupsAreWhereRoutesMayLead) {
  const std::uint32_t id = client_.create(0x20, RDMA_PS_UDP, IBV_QPT_UD);
  EXPECT_EQ(client_.resolve(id, ipv4("239.1.2.3")), 0);
  client_.expect(Happened::kAddressResolved);
  EXPECT_NE(client_.query_route(id).node_guid, 0U);
}

}  // namespace
}  // namespace verbena::compat::rdma_cm
