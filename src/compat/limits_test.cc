// SPDX-License-Identifier: Apache-2.0
//
// What a device says of its limits is what holds: the limit itself is granted, one more is refused
// with the errno that the manual pages name, and what was given back can be had again.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::connect;
using testing::Devices;
using testing::End;

constexpr nic::Limits kSmall{.max_qp = 3,
                             .max_cq = 4,
                             .max_mr = 3,
                             .max_pd = 3,
                             .max_ah = 2,
                             .max_cqe = 128,
                             .max_qp_wr = 16,
                             .max_sge = 4,
                             .max_inline = 64,
                             .max_rd_atomic = 4,
                             .max_mr_size = 1 << 16};

class Limits : public ::testing::Test {
 protected:
  Limits() : end(devices, 0), other(devices, 1) {
    EXPECT_EQ(ibv_query_device(end.context, &told), 0);
  }

  /// `make` succeeds until `limit` objects are there, `there` of which are the fixture's; then it
  /// fails with ENOMEM, and again succeeds when one is gone.
  template <typename T>
  static void fill(int limit, int there, const std::function<T*()>& make, int (*destroy)(T*)) {
    std::vector<T*> made;
    for (int i = there; i < limit; ++i) {
      made.push_back(make());
      ASSERT_NE(made.back(), nullptr) << i;
    }
    errno = 0;
    EXPECT_EQ(make(), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(destroy(made.back()), 0);
    made.back() = make();
    EXPECT_NE(made.back(), nullptr);
    for (T* object : made) EXPECT_EQ(destroy(object), 0);
  }

  [[nodiscard]] ibv_qp_init_attr init() const {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = end.cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {.max_send_wr = 1,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    return attr;
  }

  Devices devices{kSmall};
  End end;
  End other;
  ibv_device_attr told{};
};

TEST_F(Limits, AreWhatTheDeviceTells) {
  EXPECT_EQ(told.max_qp, 3);
  EXPECT_EQ(told.max_cq, 4);
  EXPECT_EQ(told.max_mr, 3);
  EXPECT_EQ(told.max_pd, 3);
  EXPECT_EQ(told.max_ah, 2);
  EXPECT_EQ(told.max_cqe, 128);
  EXPECT_EQ(told.max_qp_wr, 16);
  EXPECT_EQ(told.max_sge, 4);
  EXPECT_EQ(told.max_sge_rd, 4);
  EXPECT_EQ(told.max_qp_rd_atom, 4);
  EXPECT_EQ(told.max_qp_init_rd_atom, 4);
  EXPECT_EQ(told.max_res_rd_atom, 12);
  EXPECT_EQ(told.max_mr_size, 1U << 16);
}

TEST_F(Limits, OfProtectionDomains) {
  fill<ibv_pd>(told.max_pd, 1, [&] { return ibv_alloc_pd(end.context); }, ibv_dealloc_pd);
}

TEST_F(Limits, OfMemoryRegions) {
  fill<ibv_mr>(
      told.max_mr, 1, [&] { return ibv_reg_mr(end.pd, end.memory.data(), 64, 0); }, ibv_dereg_mr);
}

TEST_F(Limits, OfCompletionQueues) {
  fill<ibv_cq>(
      told.max_cq, 1, [&] { return ibv_create_cq(end.context, 1, nullptr, nullptr, 0); },
      ibv_destroy_cq);
}

TEST_F(Limits, OfQueuePairs) {
  fill<ibv_qp>(
      told.max_qp, 1,
      [&] {
        ibv_qp_init_attr attr = init();
        return ibv_create_qp(end.pd, &attr);
      },
      ibv_destroy_qp);
}

TEST_F(Limits, OfAddressHandles) {
  fill<ibv_ah>(
      told.max_ah, 0,
      [&] {
        ibv_ah_attr attr = testing::address_of(other);
        return ibv_create_ah(end.pd, &attr);
      },
      ibv_destroy_ah);
}

TEST_F(Limits, OfARegionsSize) {
  std::vector<std::byte> memory((1 << 16) + 1);
  ibv_mr* const most = ibv_reg_mr(end.pd, memory.data(), 1 << 16, 0);
  ASSERT_NE(most, nullptr);
  EXPECT_EQ(ibv_dereg_mr(most), 0);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(end.pd, memory.data(), (1 << 16) + 1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Limits, OfACompletionQueuesSize) {
  ibv_cq* const most = ibv_create_cq(end.context, told.max_cqe, nullptr, nullptr, 0);
  ASSERT_NE(most, nullptr);
  EXPECT_GE(most->cqe, told.max_cqe);
  EXPECT_EQ(ibv_resize_cq(most, told.max_cqe + 1), EINVAL);
  EXPECT_EQ(ibv_destroy_cq(most), 0);
  errno = 0;
  EXPECT_EQ(ibv_create_cq(end.context, told.max_cqe + 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Limits, OfAQueuePairsCapabilities) {
  const auto one_more = [](std::uint32_t ibv_qp_cap::* member, std::uint32_t limit) {
    return std::pair{member, limit};
  };
  for (const auto& [member, limit] :
       {one_more(&ibv_qp_cap::max_send_wr, 16), one_more(&ibv_qp_cap::max_recv_wr, 16),
        one_more(&ibv_qp_cap::max_send_sge, 4), one_more(&ibv_qp_cap::max_recv_sge, 4),
        one_more(&ibv_qp_cap::max_inline_data, 64)}) {
    ibv_qp_init_attr attr = init();
    attr.cap.*member = limit;
    ibv_qp* const most = ibv_create_qp(end.pd, &attr);
    ASSERT_NE(most, nullptr) << limit;
    EXPECT_GE(attr.cap.*member, limit);
    EXPECT_EQ(ibv_destroy_qp(most), 0);
    attr.cap.*member = limit + 1;
    errno = 0;
    EXPECT_EQ(ibv_create_qp(end.pd, &attr), nullptr) << limit;
    EXPECT_EQ(errno, EINVAL);
  }
}

TEST_F(Limits, OfWhatIsPosted) {
  connect(end, other);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(end.receive(1, end.piece(0, 8)), 0) << i;
  EXPECT_EQ(end.receive(1, end.piece(0, 8)), ENOMEM);
  std::array<ibv_sge, 5> pieces;
  pieces.fill(end.piece(0, 8));
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = pieces.data();
  wr.num_sge = 5;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(end.qp, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(end.send(wr, end.piece(0, 65)), EINVAL);
  // None of the three was taken. There is no receive for what follows, so all of it stays posted.
  wr.send_flags = 0;
  for (int i = 0; i < 16; ++i) ASSERT_EQ(end.send(wr, end.piece(0, 8)), 0) << i;
  EXPECT_EQ(end.send(wr, end.piece(0, 8)), ENOMEM);
}

TEST_F(Limits, OfAPathMtuAndOfReadsUnderWay) {
  ASSERT_EQ(testing::to_init(end), 0);
  ibv_qp_attr attr = testing::rtr_attributes(other);
  attr.max_dest_rd_atomic = 5;
  EXPECT_EQ(ibv_modify_qp(end.qp, &attr, testing::kRtrMask), EINVAL);
  attr = testing::rtr_attributes(other);
  attr.path_mtu = testing::wrong_value<ibv_mtu>(IBV_MTU_4096 + 1);
  EXPECT_EQ(ibv_modify_qp(end.qp, &attr, testing::kRtrMask), EINVAL);
  attr = testing::rtr_attributes(other);
  EXPECT_EQ(ibv_modify_qp(end.qp, &attr, testing::kRtrMask), 0);
}

TEST_F(Limits, WhatWasSetIsWhatIsTold) {
  connect(end, other);
  ibv_qp_attr attr{};
  ibv_qp_init_attr made{};
  ASSERT_EQ(ibv_query_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &made), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.dest_qp_num, other.qp->qp_num);
  EXPECT_EQ(attr.rq_psn, 100U);
  EXPECT_EQ(attr.sq_psn, 100U);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.max_dest_rd_atomic, 4);
  EXPECT_EQ(attr.min_rnr_timer, 1);
  EXPECT_EQ(attr.timeout, 10);
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.rnr_retry, 7);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.ah_attr.grh.hop_limit, 64);
  EXPECT_EQ(std::memcmp(attr.ah_attr.grh.dgid.raw, other.gid.raw, sizeof other.gid.raw), 0);
  EXPECT_EQ(attr.cap.max_send_wr, made.cap.max_send_wr);
  EXPECT_GE(made.cap.max_send_wr, 16U);
  EXPECT_GE(made.cap.max_inline_data, 64U);
  EXPECT_EQ(made.qp_type, IBV_QPT_RC);
  EXPECT_EQ(made.send_cq, end.cq);
}

}  // namespace
}  // namespace verbena::compat
