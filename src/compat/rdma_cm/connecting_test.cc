// SPDX-License-Identifier: Apache-2.0
//
// Connections from the device's file to the device's file: what librdmacm writes for them, and what
// it is told.
#include "compat/rdma_cm/connecting.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "compat/rdma_cm/test_channel.h"

namespace verbena::compat::rdma_cm {
namespace {

using namespace testing;

std::string_view data_of(const rdma_ucm_conn_param& param, std::size_t size) {
  return {reinterpret_cast<const char*>(param.private_data), size};
}

/// A listener and an id with a route to it.
class Connecting : public WithListener {
 protected:
  /// A request of the client's, as the server sees it.
  rdma_ucm_event_resp request(std::uint32_t& client, std::string_view data = "hello") {
    client = client_.routed(0x20, port_);
    EXPECT_EQ(client_.connect(client, parameters(0x123, data)), 0);
    return server_.expect(Happened::kConnectRequest);
  }
  /// An established connection's ids.
  struct Pair {
    std::uint32_t client = 0;
    std::uint32_t server = 0;
  };
  Pair establish() {
    Pair pair;
    pair.server = request(pair.client).id;
    EXPECT_EQ(server_.accept(pair.server, 0x30, parameters(0x456, "welcome")), 0);
    client_.expect(Happened::kConnectResponse);
    EXPECT_EQ(client_.accept(pair.client, 0, {}), 0);
    EXPECT_EQ(server_.expect(Happened::kEstablished).uid, 0x30U);
    return pair;
  }
};

TEST_F(Connecting, GoesFromRequestToEstablishedAndToItsEnd) {
  std::uint32_t client = 0;
  const rdma_ucm_event_resp request = this->request(client);
  EXPECT_EQ(request.uid, 0x10U);
  EXPECT_NE(request.id, listener_);
  EXPECT_EQ(request.param.conn.qp_num, 0x123U);
  EXPECT_EQ(request.param.conn.responder_resources, 4);
  EXPECT_EQ(request.param.conn.initiator_depth, 3);
  EXPECT_EQ(request.param.conn.private_data_len, 92 - 36);
  EXPECT_EQ(data_of(request.param.conn, 5), "hello");

  EXPECT_EQ(server_.accept(request.id, 0x30, parameters(0x456, "welcome")), 0);
  const rdma_ucm_event_resp response = client_.expect(Happened::kConnectResponse);
  EXPECT_EQ(response.uid, 0x20U);
  EXPECT_EQ(response.id, client);
  EXPECT_EQ(response.param.conn.qp_num, 0x456U);
  EXPECT_EQ(response.param.conn.private_data_len, 196);
  EXPECT_EQ(data_of(response.param.conn, 7), "welcome");

  EXPECT_EQ(client_.accept(client, 0, {}), 0);
  const rdma_ucm_event_resp established = server_.expect(Happened::kEstablished);
  EXPECT_EQ(established.uid, 0x30U);
  EXPECT_EQ(established.id, request.id);

  EXPECT_EQ(client_.disconnect(client), 0);
  EXPECT_EQ(server_.expect(Happened::kDisconnected).uid, 0x30U);
  EXPECT_EQ(server_.disconnect(request.id), 0);
  EXPECT_EQ(client_.expect(Happened::kDisconnected).status, 0U);
  EXPECT_EQ(server_.expect(Happened::kTimewaitExit).id, request.id);
  EXPECT_EQ(client_.expect(Happened::kTimewaitExit).id, client);

  std::uint32_t reported = 0;
  EXPECT_EQ(client_.destroy(client, &reported), 0);
  EXPECT_EQ(reported, 5U);
  EXPECT_EQ(server_.destroy(request.id, &reported), 0);
  EXPECT_EQ(reported, 3U);
  EXPECT_EQ(server_.destroy(listener_, &reported), 0);
  EXPECT_EQ(reported, 1U);
}

TEST_F(Connecting, BothSidesAreToldOfAnEnhancedConnection) {
  const std::uint32_t client = client_.routed(0x20, port_);
  EXPECT_EQ(client_.connect(client, parameters(), {.vendor_id = 0x0A0B0C, .attr_mod = 0x11}), 0);
  const rdma_ucm_event_resp request = server_.expect(Happened::kConnectRequest);
  EXPECT_EQ(request.ece.vendor_id, 0x0A0B0CU);
  EXPECT_EQ(request.ece.attr_mod, 0x11U);
  EXPECT_EQ(server_.accept(request.id, 0x30, parameters(),
                           {.vendor_id = 0x0A0B0C, .attr_mod = 0xF0000022}),
            0);
  const rdma_ucm_event_resp response = client_.expect(Happened::kConnectResponse);
  EXPECT_EQ(response.ece.vendor_id, 0x0A0B0CU);
  EXPECT_EQ(response.ece.attr_mod, 0xF0000022U);
  EXPECT_EQ(client_.accept(client, 0, {}), 0);
  EXPECT_EQ(server_.expect(Happened::kEstablished).ece.vendor_id, 0U);
}

TEST_F(Connecting, HalfOfAnEnhancedConnectionIsNone) {
  rdma_ucm_connect whole{};
  whole.conn_param = parameters();
  whole.id = client_.routed(0x20, port_);
  whole.ece = {.vendor_id = 0x0A0B0C, .attr_mod = 0x11};
  std::array<std::byte, offsetof(rdma_ucm_connect, ece.attr_mod)> half{};
  std::memcpy(half.data(), &whole, half.size());
  EXPECT_EQ(client_.run(RDMA_USER_CM_CMD_CONNECT, half), 0);
  const rdma_ucm_event_resp request = server_.expect(Happened::kConnectRequest);
  EXPECT_EQ(request.ece.vendor_id, 0U);
  EXPECT_EQ(request.ece.attr_mod, 0U);
}

TEST_F(Connecting, BothSidesAreToldWhatTheirQueuePairsNeed) {
  std::uint32_t client = 0;
  const std::uint32_t server = request(client).id;
  ib_uverbs_qp_attr passive{};
  ASSERT_EQ(server_.attributes(server, IBV_QPS_RTR, passive), 0);
  EXPECT_EQ(
      passive.qp_attr_mask,
      static_cast<unsigned>(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  EXPECT_EQ(passive.dest_qp_num, 0x123U);
  EXPECT_EQ(passive.ah_attr.is_global, 1);
  EXPECT_EQ(passive.ah_attr.port_num, 1);
  EXPECT_EQ(passive.ah_attr.grh.hop_limit, 64);
  EXPECT_EQ(passive.ah_attr.grh.dgid[15], 1);
  ib_uverbs_qp_attr sending{};
  ASSERT_EQ(server_.attributes(server, IBV_QPS_RTS, sending), 0);
  EXPECT_EQ(sending.retry_cnt, 7);
  EXPECT_EQ(sending.rnr_retry, 6);
  EXPECT_NE(sending.timeout, 0);

  // Nothing is known of the peer before it answers.
  ib_uverbs_qp_attr active{};
  EXPECT_EQ(client_.attributes(client, IBV_QPS_INIT, active), 0);
  EXPECT_EQ(active.qp_access_flags,
            static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC));
  EXPECT_EQ(client_.attributes(client, IBV_QPS_RTR, active), EINVAL);

  EXPECT_EQ(server_.accept(server, 0x30, parameters(0x456)), 0);
  client_.expect(Happened::kConnectResponse);
  ASSERT_EQ(client_.attributes(client, IBV_QPS_RTR, active), 0);
  EXPECT_EQ(active.dest_qp_num, 0x456U);
  EXPECT_EQ(active.rq_psn, sending.sq_psn);
  EXPECT_EQ(active.path_mtu, passive.path_mtu);
  ib_uverbs_qp_attr active_sending{};
  ASSERT_EQ(client_.attributes(client, IBV_QPS_RTS, active_sending), 0);
  EXPECT_EQ(active_sending.sq_psn, passive.rq_psn);
}

TEST_F(Connecting, EachTypeOfQueuePairIsToldWhatItHas) {
  constexpr std::uint32_t kReady =
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr std::uint32_t kResponds = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr std::uint32_t kSends = IBV_QP_STATE | IBV_QP_SQ_PSN;
  constexpr std::uint32_t kRequests =
      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  const struct {
    __u8 active;
    __u8 passive;
    std::uint32_t active_ready, active_sends, passive_ready, passive_sends;
  } cases[] = {
      {IBV_QPT_UC, IBV_QPT_UC, kReady, kSends, kReady, kSends},
      {IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, kReady, kSends | kRequests, kReady | kResponds,
       kSends | IBV_QP_TIMEOUT},
  };
  std::uint16_t port = 20100;
  for (const auto& types : cases) {
    const std::uint32_t listener = server_.create(0x50, RDMA_PS_IB, types.passive);
    EXPECT_EQ(server_.bind(listener, ipv4(kThere, ++port)), 0);
    EXPECT_EQ(server_.listen(listener), 0);
    const std::uint32_t client = client_.create(0x60, RDMA_PS_IB, types.active);
    EXPECT_EQ(client_.resolve(client, ipv4(kThere, port)), 0);
    client_.expect(Happened::kAddressResolved);
    EXPECT_EQ(client_.resolve_route(client), 0);
    client_.expect(Happened::kRouteResolved);
    EXPECT_EQ(client_.connect(client, parameters(0x123)), 0);
    const rdma_ucm_event_resp request = server_.expect(Happened::kConnectRequest);
    EXPECT_EQ(server_.accept(request.id, 0x70, parameters(0x456)), 0);
    const rdma_ucm_event_resp response = client_.expect(Happened::kConnectResponse);
    EXPECT_EQ(response.param.conn.qp_num, 0x456U);
    const bool extended = types.active == IBV_QPT_XRC_SEND;
    EXPECT_EQ(request.param.conn.retry_count, extended ? 0 : 7);
    EXPECT_EQ(response.param.conn.srq, extended ? 1 : 0);
    EXPECT_EQ(response.param.conn.responder_resources, extended ? 0 : 4);
    const auto mask = [](Channel& channel, std::uint32_t id, std::uint32_t state) {
      ib_uverbs_qp_attr attributes{};
      EXPECT_EQ(channel.attributes(id, state, attributes), 0);
      return attributes.qp_attr_mask;
    };
    EXPECT_EQ(mask(client_, client, IBV_QPS_RTR), types.active_ready);
    EXPECT_EQ(mask(client_, client, IBV_QPS_RTS), types.active_sends);
    EXPECT_EQ(mask(server_, request.id, IBV_QPS_RTR), types.passive_ready);
    EXPECT_EQ(mask(server_, request.id, IBV_QPS_RTS), types.passive_sends);
    EXPECT_EQ(client_.destroy(client), 0);
    EXPECT_EQ(server_.destroy(request.id), 0);
    EXPECT_EQ(server_.destroy(listener), 0);
  }
}

TEST_F(Connecting, RequestSaysWhoAndWhereItIs) {
  std::uint32_t client = 0;
  const std::uint32_t server = request(client).id;
  const rdma_ucm_query_route_resp route = server_.query_route(server);
  EXPECT_EQ(route.node_guid, htobe64(0x0256524200000092));
  EXPECT_EQ(route.port_num, 1);
  EXPECT_EQ(route.num_paths, 1U);
  sockaddr_in address{};
  std::memcpy(&address, &route.src_addr, sizeof address);
  EXPECT_EQ(ntohs(address.sin_port), port_);
  EXPECT_EQ(address.sin_addr.s_addr, ipv4(kThere).sin_addr.s_addr);
  std::memcpy(&address, &route.dst_addr, sizeof address);
  EXPECT_EQ(address.sin_addr.s_addr, ipv4(kHere).sin_addr.s_addr);
  EXPECT_NE(address.sin_port, 0);
}

TEST_F(Connecting, RejectionBringsItsReasonAndData) {
  std::uint32_t client = 0;
  const std::uint32_t server = request(client).id;
  EXPECT_EQ(server_.reject(server, "no", 29), EINVAL);
  EXPECT_EQ(server_.reject(server, "no"), 0);
  const rdma_ucm_event_resp event = client_.expect(Happened::kRejected);
  EXPECT_EQ(event.status, 28U);
  EXPECT_EQ(event.param.conn.private_data_len, 148);
  EXPECT_EQ(data_of(event.param.conn, 2), "no");
}

TEST_F(Connecting, AnEnhancedConnectionIsRejectedForItsOptions) {
  std::uint32_t client = 0;
  const std::uint32_t server = request(client).id;
  EXPECT_EQ(server_.reject(server, "", 35), 0);
  EXPECT_EQ(client_.expect(Happened::kRejected).status, 35U);
}

TEST_F(Connecting, NobodyListensAndItIsRejected) {
  const std::uint32_t client =
      client_.routed(0x20, static_cast<std::uint16_t>(port_ == 20001 ? 20002 : 20001));
  EXPECT_EQ(client_.connect(client), 0);
  EXPECT_EQ(client_.expect(Happened::kRejected).status, 8U);
}

TEST_F(Connecting, PrivateDataHasItsLimits) {
  const std::uint32_t client = client_.routed(0x20, port_);
  const std::string most(56, 'x');
  EXPECT_EQ(client_.connect(client, parameters(1, most + "x")), EINVAL);
  EXPECT_EQ(client_.connect(client, parameters(1, most)), 0);
  const std::uint32_t server = server_.expect(Happened::kConnectRequest).id;
  EXPECT_EQ(server_.reject(server, std::string(149, 'x')), EINVAL);
  EXPECT_EQ(server_.accept(server, 0x30, parameters(2, std::string(197, 'x'))), EINVAL);
  // As the kernel: whoever may not accept rejects.
  EXPECT_EQ(client_.expect(Happened::kRejected).status, 28U);
}

TEST_F(Connecting, DestroyedIdEndsItsConnection) {
  const Pair pair = establish();
  EXPECT_EQ(client_.destroy(pair.client), 0);
  EXPECT_EQ(server_.expect(Happened::kDisconnected).id, pair.server);
}

TEST_F(Connecting, ClosedChannelEndsItsConnections) {
  const Pair pair = establish();
  client_.close();
  EXPECT_EQ(server_.expect(Happened::kDisconnected).id, pair.server);
}

TEST_F(Connecting, DestroyedListenerRefusesWhatNobodySaw) {
  const std::uint32_t client = client_.routed(0x20, port_);
  EXPECT_EQ(client_.connect(client), 0);
  EXPECT_TRUE(server_.wait(30'000));
  std::uint32_t reported = 1;
  EXPECT_EQ(server_.destroy(listener_, &reported), 0);
  EXPECT_EQ(reported, 0U);
  EXPECT_FALSE(server_.wait(0));
  client_.expect(Happened::kRejected);
}

TEST_F(Connecting, FullBacklogTakesNoMore) {
  std::uint16_t port = 0;
  const std::uint32_t listener = server_.listener(0x11, port, RDMA_PS_TCP, 1);
  const std::uint32_t first = client_.routed(0x21, port);
  const std::uint32_t second = client_.routed(0x22, port);
  EXPECT_EQ(client_.connect(first, parameters(1)), 0);
  EXPECT_TRUE(server_.wait(30'000));
  EXPECT_EQ(client_.connect(second, parameters(2)), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(server_.expect(Happened::kConnectRequest).param.conn.qp_num, 1U);
  EXPECT_FALSE(server_.wait(0));
  EXPECT_EQ(server_.expect(Happened::kConnectRequest).param.conn.qp_num, 2U) << "sent again";
  EXPECT_EQ(server_.destroy(listener), 0);
}

TEST_F(Connecting, EarlyDataEstablishes) {
  std::uint32_t client = 0;
  const std::uint32_t server = request(client).id;
  const auto notify = [&](std::uint32_t event) {
    return server_.run(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{.id = server, .event = event});
  };
  EXPECT_EQ(notify(IBV_EVENT_COMM_EST), EINVAL);
  EXPECT_EQ(server_.accept(server, 0x30, parameters(2)), 0);
  client_.expect(Happened::kConnectResponse);
  EXPECT_EQ(notify(IBV_EVENT_PATH_MIG), EINVAL);
  EXPECT_EQ(notify(IBV_EVENT_COMM_EST), 0);
  EXPECT_EQ(server_.expect(Happened::kEstablished).id, server);
  EXPECT_EQ(notify(IBV_EVENT_COMM_EST), EISCONN);
}

TEST_F(Connecting, ListensAtAllDevicesWithOnePort) {
  std::uint16_t port = 0;
  server_.listener(0x12, port, RDMA_PS_TCP, 8, "0.0.0.0");
  for (const char* const at : {kHere, kThere}) {
    const std::uint32_t client = client_.create(0x40);
    EXPECT_EQ(client_.resolve(client, ipv4(at, port)), 0);
    client_.expect(Happened::kAddressResolved);
    EXPECT_EQ(client_.resolve_route(client), 0);
    client_.expect(Happened::kRouteResolved);
    EXPECT_EQ(client_.connect(client, parameters(0x99)), 0);
    const std::uint32_t server = server_.expect(Happened::kConnectRequest).id;
    EXPECT_EQ(server_.reject(server, ""), 0);
    client_.expect(Happened::kRejected);
  }
}

}  // namespace
}  // namespace verbena::compat::rdma_cm
