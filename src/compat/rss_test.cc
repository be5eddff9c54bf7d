// SPDX-License-Identifier: Apache-2.0
//
// Receive-side scaling through the C ABI: work queues, tables of them, and queue pairs that spread.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <set>

#include "compat/test_raw.h"

namespace verbena::compat {
namespace {

using testing::bring_up_raw;
using testing::Devices;
using testing::End;
using testing::EthernetRule;
using testing::frame_from;
using testing::send_frame;
using testing::steer;
using testing::wrong_value;

class Spreading : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kLogSize = 1;

  Spreading() {
    bring_up_raw(sender);
    for (ibv_wq*& wq : wqs) {
      wq = make_wq();
      EXPECT_EQ(go_to(wq, IBV_WQS_RDY), 0);
    }
    ibv_rwq_ind_table_init_attr init{
        .log_ind_tbl_size = kLogSize, .ind_tbl = wqs.data(), .comp_mask = 0};
    table = ibv_create_rwq_ind_table(receiver.context, &init);
    EXPECT_NE(table, nullptr);
  }
  ~Spreading() override {
    if (qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
    EXPECT_EQ(ibv_destroy_rwq_ind_table(table), 0);
    for (ibv_wq* wq : wqs) EXPECT_EQ(ibv_destroy_wq(wq), 0);
  }

  [[nodiscard]] ibv_wq* make_wq(std::uint32_t max_wr = 16) const {
    ibv_wq_init_attr init{};
    init.wq_type = IBV_WQT_RQ;
    init.max_wr = max_wr;
    init.max_sge = 1;
    init.pd = receiver.pd;
    init.cq = receiver.cq;
    return ibv_create_wq(receiver.context, &init);
  }
  static int go_to(ibv_wq* wq, ibv_wq_state state) {
    ibv_wq_attr attr{};
    attr.attr_mask = IBV_WQ_ATTR_STATE;
    attr.wq_state = state;
    return ibv_modify_wq(wq, &attr);
  }
  [[nodiscard]] int post(ibv_wq* wq, std::uint64_t id) const {
    ibv_sge piece = receiver.piece(0, 100);
    ibv_recv_wr wr{.wr_id = id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_wq_recv(wq, &wr, &bad);
  }
  [[nodiscard]] ibv_qp_init_attr_ex spreading() {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_RAW_PACKET;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE;
    init.pd = receiver.pd;
    init.rwq_ind_tbl = table;
    init.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
                         .rx_hash_key_len = static_cast<std::uint8_t>(key.size()),
                         .rx_hash_key = key.data(),
                         .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4};
    return init;
  }
  /// The queue that a frame from an address ends in.
  std::uint32_t send_from(std::uint8_t last_of_address) {
    frame_from(sender, 7, last_of_address);
    EXPECT_EQ(send_frame(sender), 0);
    EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
    const ibv_wc received = receiver.await();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    return received.qp_num;
  }

  Devices devices;
  End sender{devices, 0, IBV_QPT_RAW_PACKET};
  End receiver{devices, 1};
  // So that the lowest bit of the source's address becomes the hash's.
  std::array<std::uint8_t, 40> key{0, 0, 0, 0, 0, 0, 0, 2};
  std::array<ibv_wq*, 1 << kLogSize> wqs{};
  ibv_rwq_ind_table* table = nullptr;
  ibv_qp* qp = nullptr;
};

TEST_F(Spreading, TheSameAddressesEndInTheSameQueue) {
  ibv_qp_init_attr_ex init = spreading();
  qp = ibv_create_qp_ex(receiver.context, &init);
  ASSERT_NE(qp, nullptr);
  ibv_flow* const flow = steer(qp, EthernetRule{7});
  ASSERT_NE(flow, nullptr);
  for (ibv_wq* wq : wqs) {
    for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(post(wq, i), 0);
    EXPECT_EQ(post(wq, 16), ENOMEM);
  }
  std::set<std::uint32_t> queues;
  for (std::uint8_t address = 0; address < 8; ++address) {
    const std::uint32_t queue = send_from(address);
    EXPECT_EQ(send_from(address), queue);
    queues.insert(queue);
  }
  EXPECT_EQ(queues, (std::set<std::uint32_t>{wqs[0]->wq_num, wqs[1]->wq_num}));
  EXPECT_EQ(ibv_destroy_rwq_ind_table(table), EBUSY);
  EXPECT_EQ(ibv_destroy_wq(wqs[0]), EBUSY);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(Spreading, SuchAQueuePairNeitherSendsNorChanges) {
  ibv_qp_init_attr_ex init = spreading();
  qp = ibv_create_qp_ex(receiver.context, &init);
  ASSERT_NE(qp, nullptr);
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EOPNOTSUPP);
  ibv_qp_init_attr plain{};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &plain), 0);
}

TEST_F(Spreading, WhatItCannotDoIsRefused) {
  const auto refusal = [&](auto change) {
    ibv_qp_init_attr_ex init = spreading();
    change(init);
    errno = 0;
    EXPECT_EQ(ibv_create_qp_ex(receiver.context, &init), nullptr);
    return errno;
  };
  using Init = ibv_qp_init_attr_ex;
  EXPECT_EQ(refusal([](Init& init) { init.qp_type = IBV_QPT_UD; }), EOPNOTSUPP);
  EXPECT_EQ(refusal([](Init& init) { init.cap.max_send_wr = 1; }), EOPNOTSUPP);
  EXPECT_EQ(refusal([](Init& init) { init.rx_hash_conf.rx_hash_function = 2; }), EOPNOTSUPP);
  EXPECT_EQ(
      refusal([](Init& init) { init.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_IPSEC_SPI; }),
      EOPNOTSUPP);
  EXPECT_EQ(refusal([](Init& init) { init.rx_hash_conf.rx_hash_key_len = 39; }), EINVAL);
  EXPECT_EQ(refusal([](Init& init) { init.rwq_ind_tbl = nullptr; }), EINVAL);
  EXPECT_EQ(refusal([](Init& init) { init.comp_mask &= ~IBV_QP_INIT_ATTR_RX_HASH; }), EINVAL);
}

TEST_F(Spreading, WorkQueuesGoFromStateToState) {
  ibv_wq* const wq = make_wq();
  ASSERT_NE(wq, nullptr);
  EXPECT_EQ(wq->state, IBV_WQS_RESET);
  EXPECT_EQ(post(wq, 1), EINVAL);
  EXPECT_EQ(go_to(wq, IBV_WQS_ERR), EINVAL);
  EXPECT_EQ(go_to(wq, wrong_value<ibv_wq_state>(3)), EINVAL);
  ibv_wq_attr attr{};
  attr.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE;
  attr.wq_state = IBV_WQS_RDY;
  attr.curr_wq_state = IBV_WQS_ERR;
  EXPECT_EQ(ibv_modify_wq(wq, &attr), EINVAL);
  attr.curr_wq_state = IBV_WQS_RESET;
  EXPECT_EQ(ibv_modify_wq(wq, &attr), 0);
  EXPECT_EQ(wq->state, IBV_WQS_RDY);
  ASSERT_EQ(post(wq, 2), 0);
  EXPECT_EQ(go_to(wq, IBV_WQS_ERR), 0);
  ibv_wc flushed = receiver.await();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 2u);
  ASSERT_EQ(post(wq, 3), 0);
  EXPECT_EQ(receiver.await().wr_id, 3u);
  EXPECT_EQ(go_to(wq, IBV_WQS_RDY), EINVAL);
  EXPECT_EQ(go_to(wq, IBV_WQS_RESET), 0);
  attr.attr_mask = IBV_WQ_ATTR_FLAGS;
  attr.flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING;
  EXPECT_EQ(ibv_modify_wq(wq, &attr), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_wq(wq), 0);
  EXPECT_EQ(make_wq(1U << 30), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Spreading, TablesHaveALimit) {
  ibv_rwq_ind_table_init_attr init{.log_ind_tbl_size = 10, .ind_tbl = wqs.data(), .comp_mask = 0};
  EXPECT_EQ(ibv_create_rwq_ind_table(receiver.context, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Spreading, TheDeviceSaysWhatItCan) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(receiver.context, nullptr, &attr), 0);
  EXPECT_EQ(attr.rss_caps.supported_qpts, 1U << IBV_QPT_RAW_PACKET);
  EXPECT_EQ(attr.rss_caps.rx_hash_function, IBV_RX_HASH_FUNC_TOEPLITZ);
  EXPECT_EQ(attr.rss_caps.rx_hash_fields_mask, 0xFFu);
  EXPECT_EQ(attr.rss_caps.max_rwq_indirection_table_size, 512u);
  EXPECT_GT(attr.max_wq_type_rq, 0u);
  EXPECT_EQ(attr.raw_packet_caps, 0u);
  EXPECT_GT(attr.orig_attr.max_raw_ethy_qp, 0);
  EXPECT_NE(attr.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING, 0u);
}

}  // namespace
}  // namespace verbena::compat
