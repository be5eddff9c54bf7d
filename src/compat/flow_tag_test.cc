// SPDX-License-Identifier: Apache-2.0
// The tag that a steering rule gives to frames (ibv_create_flow(3)), read field by field.
#include <gtest/gtest.h>

#include <cerrno>

#include "compat/test_raw.h"

namespace verbena::compat {
namespace {

using testing::bring_up_raw;
using testing::Devices;
using testing::End;
using testing::EthernetRule;
using testing::frame_from;
using testing::send_frame;

/// A rule with an action, or two.
struct TaggingRule {
  explicit TaggingRule(std::uint32_t tag) {
    rule.attr.size = sizeof *this;
    for (ibv_flow_spec_action_tag& action : actions)
      action = {.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof action, .tag_id = tag};
    rule.attr.num_of_specs = 2;
  }
  EthernetRule rule{7};
  std::array<ibv_flow_spec_action_tag, 2> actions{};
};
static_assert(offsetof(TaggingRule, actions) == sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_eth));

class FlowTags : public ::testing::Test {
 protected:
  FlowTags() {
    EXPECT_EQ(ibv_destroy_qp(receiver.qp), 0);
    EXPECT_EQ(ibv_destroy_cq(receiver.cq), 0);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
    cq = ibv_create_cq_ex(receiver.context, &attr);
    EXPECT_NE(cq, nullptr);
    receiver.cq = ibv_cq_ex_to_cq(cq);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = receiver.cq;
    init.cap.max_recv_wr = 4;
    init.cap.max_recv_sge = 1;
    init.qp_type = IBV_QPT_RAW_PACKET;
    receiver.qp = ibv_create_qp(receiver.pd, &init);
    bring_up_raw(sender);
    bring_up_raw(receiver);
    frame_from(sender, 7);
  }
  /// The tag of a frame that is sent now.
  std::uint32_t tag_of_frame() {
    EXPECT_EQ(receiver.receive(5, receiver.piece(1000, 2000)), 0);
    EXPECT_EQ(send_frame(sender), 0);
    EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
    ibv_poll_cq_attr attr{};
    EXPECT_EQ(ibv_start_poll(cq, &attr), 0);
    const std::uint32_t tag = ibv_wc_read_flow_tag(cq);
    ibv_end_poll(cq);
    return tag;
  }

  Devices devices;
  End sender{devices, 0, IBV_QPT_RAW_PACKET};
  End receiver{devices, 1, IBV_QPT_RAW_PACKET};
  ibv_cq_ex* cq = nullptr;
};

TEST_F(FlowTags, AreReadFromTheCompletionsOfTheirFrames) {
  TaggingRule rule(0xABCDEF01);
  ibv_flow* flow = ibv_create_flow(receiver.qp, &rule.rule.attr);
  ASSERT_NE(flow, nullptr);
  EXPECT_EQ(tag_of_frame(), 0xABCDEF01U);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
  flow = testing::steer(receiver, EthernetRule{7});
  EXPECT_EQ(tag_of_frame(), 0U);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(FlowTags, ARuleHasOne) {
  TaggingRule rule(1);
  rule.rule.attr.num_of_specs = 3;
  EXPECT_EQ(ibv_create_flow(receiver.qp, &rule.rule.attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  rule.rule.attr.num_of_specs = 2;
  rule.actions[0].size = 8;
  EXPECT_EQ(ibv_create_flow(receiver.qp, &rule.rule.attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::compat
