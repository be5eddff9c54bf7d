// SPDX-License-Identifier: Apache-2.0
//
// The rate limit of a queue pair through the C ABI: what it does to time, and what is refused.
#include <gtest/gtest.h>

#include <cerrno>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::connect;
using testing::Devices;
using testing::End;

class RateLimit : public ::testing::Test {
 protected:
  RateLimit() { connect(a, b); }

  /// How long 60,000 bytes take.
  [[nodiscard]] Duration write() {
    const Time before = devices.host.clock;
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {.remote_addr = b.address(0), .rkey = b.mr->rkey};
    EXPECT_EQ(a.send(wr, a.piece(0, 60'000)), 0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    return devices.host.clock - before;
  }
  [[nodiscard]] int modify(std::uint32_t kilobits) const {
    ibv_qp_attr attr{};
    attr.rate_limit = kilobits;
    return ibv_modify_qp(a.qp, &attr, IBV_QP_RATE_LIMIT);
  }

  Devices devices;
  End a{devices, 0};
  End b{devices, 1};
};

TEST_F(RateLimit, HoldsRequestsBackUntilItIsTakenAway) {
  ibv_qp_rate_limit_attr limit{};
  limit.rate_limit = 100'000;  // 60,000 bytes in 4.8 ms
  limit.max_burst_sz = 4096;
  ASSERT_EQ(ibv_modify_qp_rate_limit(a.qp, &limit), 0);
  EXPECT_GT(write(), std::chrono::microseconds(4500));
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_RATE_LIMIT, &init), 0);
  EXPECT_EQ(attr.rate_limit, 100'000U);
  limit = {};
  ASSERT_EQ(ibv_modify_qp_rate_limit(a.qp, &limit), 0);
  EXPECT_LT(write(), std::chrono::microseconds(100));
  ASSERT_EQ(modify(100'000), 0);
  EXPECT_GT(write(), std::chrono::microseconds(2000));  // but for a burst
}

TEST_F(RateLimit, WhatMakesNoSenseIsRefused) {
  ibv_qp_rate_limit_attr limit{};
  limit.rate_limit = 1000;
  limit.comp_mask = 1;
  EXPECT_EQ(ibv_modify_qp_rate_limit(a.qp, &limit), EINVAL);
  limit = {};
  limit.max_burst_sz = 4096;
  EXPECT_EQ(ibv_modify_qp_rate_limit(a.qp, &limit), EINVAL);
  limit = {};
  limit.rate_limit = ~0U;
  EXPECT_EQ(ibv_modify_qp_rate_limit(a.qp, &limit), EINVAL);
  EXPECT_EQ(modify(~0U), EINVAL);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(modify(1000), EINVAL);  // it does not send
}

TEST_F(RateLimit, TheDeviceSaysWhatItCanDo) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(a.context, nullptr, &attr), 0);
  EXPECT_EQ(attr.packet_pacing_caps.qp_rate_limit_min, 1U);
  EXPECT_EQ(modify(attr.packet_pacing_caps.qp_rate_limit_max), 0);
  EXPECT_EQ(modify(attr.packet_pacing_caps.qp_rate_limit_min), 0);
  EXPECT_NE(attr.packet_pacing_caps.supported_qpts & 1U << IBV_QPT_RC, 0U);
  EXPECT_NE(attr.packet_pacing_caps.supported_qpts & 1U << IBV_QPT_UD, 0U);
}

}  // namespace
}  // namespace verbena::compat
