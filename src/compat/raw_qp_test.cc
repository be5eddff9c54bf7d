// SPDX-License-Identifier: Apache-2.0
//
// Raw packet queue pairs through the C ABI: frames to the segment, steering rules, states,
// failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "compat/test_raw.h"

namespace verbena::compat {
namespace {

using testing::bring_up_raw;
using testing::Devices;
using testing::End;
using testing::EthernetRule;
using testing::frame_from;
using testing::go_to;
using testing::kFrameSize;
using testing::send_frame;
using testing::steer;

class RawPackets : public ::testing::Test {
 protected:
  RawPackets() {
    bring_up_raw(sender);
    bring_up_raw(receiver);
    frame_from(sender, 7);
  }
  [[nodiscard]] static bool silent(const End& end) {
    ibv_wc wc{};
    return ibv_poll_cq(end.cq, 1, &wc) == 0;
  }

  Devices devices;
  End sender{devices, 0, IBV_QPT_RAW_PACKET};
  End receiver{devices, 1, IBV_QPT_RAW_PACKET};
};

TEST_F(RawPackets, GoWhereARuleSteersThem) {
  ibv_flow* const flow = steer(receiver, EthernetRule{7});
  ASSERT_NE(flow, nullptr);
  ASSERT_EQ(receiver.receive(5, receiver.piece(1000, 2000)), 0);
  ASSERT_EQ(send_frame(sender), 0);
  const ibv_wc sent = sender.await();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  const ibv_wc received = receiver.await();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 5u);
  EXPECT_EQ(received.byte_len, kFrameSize);
  EXPECT_EQ(received.qp_num, receiver.qp->qp_num);
  EXPECT_EQ(std::memcmp(receiver.memory.data() + 1000, sender.memory.data(), kFrameSize), 0);

  frame_from(sender, 8);  // which no rule is about
  ASSERT_EQ(receiver.receive(6, receiver.piece(1000, 2000)), 0);
  ASSERT_EQ(send_frame(sender), 0);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(silent(receiver));

  EXPECT_EQ(ibv_destroy_qp(receiver.qp), EBUSY);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
  frame_from(sender, 7);
  ASSERT_EQ(send_frame(sender), 0);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(silent(receiver));
}

TEST_F(RawPackets, ComeBackToTheSenderOnlyByARuleOfItsOwn) {
  ASSERT_EQ(sender.receive(5, sender.piece(1000, 2000)), 0);
  ASSERT_EQ(send_frame(sender), 0);
  EXPECT_EQ(sender.await().opcode, IBV_WC_SEND);
  EXPECT_TRUE(silent(sender));
  ibv_flow* const flow = steer(sender, EthernetRule{7});
  ASSERT_EQ(send_frame(sender), 0);
  EXPECT_EQ(sender.await().opcode, IBV_WC_SEND);
  EXPECT_EQ(sender.await().opcode, IBV_WC_RECV);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(RawPackets, WithoutARoomyReceiveAreDropped) {
  ibv_flow* const flow = steer(receiver, EthernetRule{7});
  ASSERT_EQ(send_frame(sender), 0);
  ASSERT_EQ(receiver.receive(5, receiver.piece(1000, kFrameSize - 1)), 0);
  ASSERT_EQ(send_frame(sender), 0);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(silent(receiver));
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(RawPackets, InlineInPiecesAndByTheNewCalls) {
  ibv_flow* const flow = steer(receiver, EthernetRule{7});
  ASSERT_EQ(receiver.receive(1, receiver.piece(1000, 2000)), 0);
  ibv_sge pieces[] = {sender.piece(0, 20), sender.piece(20, kFrameSize - 20)};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = pieces;
  wr.num_sge = 2;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(sender.qp, &wr, &bad), 0);  // unsignalled
  EXPECT_EQ(receiver.await().byte_len, kFrameSize);
  EXPECT_TRUE(silent(sender));
  EXPECT_EQ(std::memcmp(receiver.memory.data() + 1000, sender.memory.data(), kFrameSize), 0);
  ASSERT_EQ(receiver.receive(2, receiver.piece(1000, 2000)), 0);
  wr.send_flags = IBV_SEND_INLINE;
  wr.num_sge = 1;
  pieces[0].lkey = 0;
  ASSERT_EQ(ibv_post_send(sender.qp, &wr, &bad), 0);
  EXPECT_EQ(receiver.await().byte_len, 20u);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(RawPackets, OtherOperationsAreRefused) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  EXPECT_EQ(sender.send(wr, sender.piece(0, 100)), EINVAL);
  wr.opcode = IBV_WR_RDMA_WRITE;
  EXPECT_EQ(sender.send(wr, sender.piece(0, 100)), EINVAL);
}

TEST_F(RawPackets, ThatAreNoFramesFailAndFlushWhatIsBehind) {
  for (const std::uint32_t size : {13u, 9217u}) {
    ASSERT_EQ(sender.receive(2, sender.piece(0, 100)), 0);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    ASSERT_EQ(sender.send(wr, sender.piece(0, size)), 0);
    EXPECT_EQ(sender.await().status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(sender.await().status, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(sender.receive(3, sender.piece(0, 100)), 0);
    EXPECT_EQ(sender.await().wr_id, 3u);
    ASSERT_EQ(send_frame(sender), 0);
    EXPECT_EQ(sender.await().status, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(go_to(sender, IBV_QPS_RESET), 0);
    bring_up_raw(sender);
  }
}

TEST_F(RawPackets, FromOrIntoMemoryOfNoRegionFail) {
  ibv_flow* const flow = steer(receiver, EthernetRule{7});
  ibv_sge wrong = receiver.piece(0, 2000);
  wrong.lkey ^= 0x100;
  ASSERT_EQ(receiver.receive(1, wrong), 0);
  ASSERT_EQ(send_frame(sender), 0);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(receiver.await().status, IBV_WC_LOC_PROT_ERR);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(receiver.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.element.qp, receiver.qp);
  ibv_ack_async_event(&event);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wrong = sender.piece(0, 100);
  wrong.lkey ^= 0x100;
  ASSERT_EQ(sender.send(wr, wrong), 0);
  EXPECT_EQ(sender.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(RawPackets, StatesWantThePortAndNothingElse) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(sender.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(init.qp_type, IBV_QPT_RAW_PACKET);
  ASSERT_EQ(go_to(sender, IBV_QPS_RESET), 0);
  EXPECT_EQ(send_frame(sender), EINVAL);
  EXPECT_EQ(sender.receive(1, sender.piece(0, 100)), EINVAL);
  EXPECT_EQ(go_to(sender, IBV_QPS_INIT), EINVAL);  // which port?
  attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(sender.qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY), EINVAL);
  EXPECT_EQ(ibv_modify_qp(sender.qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
  EXPECT_EQ(go_to(sender, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(go_to(sender, IBV_QPS_RTR), 0);
  EXPECT_EQ(send_frame(sender), EINVAL);
  EXPECT_EQ(go_to(sender, IBV_QPS_RTS), 0);
}

TEST_F(RawPackets, WaitWhileTheSendQueueIsDrained) {
  ASSERT_EQ(go_to(sender, IBV_QPS_SQD), 0);
  ASSERT_EQ(send_frame(sender), 0);
  EXPECT_TRUE(silent(sender));
  ASSERT_EQ(go_to(sender, IBV_QPS_RTS), 0);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
}

TEST_F(RawPackets, OverflowingACompletionQueueEndTheirQueuePair) {
  ibv_flow* const flow = steer(receiver, EthernetRule{7});
  for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(receiver.receive(i, receiver.piece(0, 100)), 0);
  ASSERT_EQ(ibv_resize_cq(receiver.cq, 1), 0);
  ASSERT_EQ(send_frame(sender), 0);
  ASSERT_EQ(send_frame(sender), 0);
  std::vector<int> kinds;
  for (int i = 0; i < 2; ++i) {
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(receiver.context, &event), 0);
    kinds.push_back(event.event_type);
    ibv_ack_async_event(&event);
  }
  std::ranges::sort(kinds);
  EXPECT_EQ(kinds, (std::vector<int>{IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL}));
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(receiver.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(RawPackets, RulesThatMakeNoSenseAreRefused) {
  const auto refusal = [&](const EthernetRule& rule) {
    errno = 0;
    EXPECT_EQ(steer(receiver, rule), nullptr);
    return errno;
  };
  const auto changed = [](auto change) {
    EthernetRule rule{7};
    change(rule);
    return rule;
  };
  EXPECT_EQ(refusal(changed([](EthernetRule& rule) { rule.attr.port = 2; })), EINVAL);
  EXPECT_EQ(refusal(changed([](EthernetRule& rule) { rule.spec.size = 8; })), EINVAL);
  EXPECT_EQ(refusal(changed([](EthernetRule& rule) { rule.attr.flags = 1; })), EINVAL);
  EXPECT_EQ(refusal(changed([](EthernetRule& rule) {
              rule.attr.type = testing::wrong_value<ibv_flow_attr_type>(4);
            })),
            EINVAL);
  EXPECT_EQ(refusal(changed([](EthernetRule& rule) { rule.attr.type = IBV_FLOW_ATTR_SNIFFER; })),
            EINVAL);
  EXPECT_EQ(
      refusal(changed([](EthernetRule& rule) { rule.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS; })),
      EOPNOTSUPP);
  EXPECT_EQ(
      refusal(changed([](EthernetRule& rule) { rule.spec.type = IBV_FLOW_SPEC_VXLAN_TUNNEL; })),
      EOPNOTSUPP);
  EXPECT_EQ(refusal(changed([](EthernetRule& rule) { rule.attr.comp_mask = 1; })), EOPNOTSUPP);
}

TEST_F(RawPackets, RulesAreForRawPacketQueuePairs) {
  const End connected(devices, 0, IBV_QPT_RC);
  EXPECT_EQ(steer(connected, EthernetRule{7}), nullptr);
  EXPECT_EQ(errno, EINVAL);
  const End datagrams(devices, 0, IBV_QPT_UD);
  EXPECT_EQ(steer(datagrams, EthernetRule{7}), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(RawPackets, WhatIsLeftBehindGoesWithItsDevice) {
  ibv_flow* const rule = steer(receiver, EthernetRule{7});
  ASSERT_NE(rule, nullptr);
  receiver.leave_behind();
  delete &Flow::of(rule);
  ASSERT_EQ(send_frame(sender), 0);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace verbena::compat
