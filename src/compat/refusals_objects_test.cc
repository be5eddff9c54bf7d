// SPDX-License-Identifier: Apache-2.0
//
// What the verbs that make, change and destroy objects refuse, by the errno that the manual pages
// or Linux name; and that everything works as before afterwards.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;
using testing::wrong_value;

constexpr nic::Limits kLimits{.max_mw = 2, .max_dm_size = 4096};

/// Why a verb that makes something did not.
template <typename Make>
int refusal(Make make) {
  errno = 0;
  EXPECT_EQ(make(), nullptr);
  return errno;
}

/// `end` and `peer` are connected; `stranger` is another context of the first one's device.
class Refusals : public ::testing::Test {
 protected:
  Refusals() { testing::connect(end, peer); }
  /// What was refused left everything working.
  ~Refusals() override {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {.remote_addr = peer.address(0), .rkey = peer.mr->rkey};
    EXPECT_EQ(end.send(wr, end.piece(0, 100)), 0);
    EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
  }

  ibv_cq* make_cq(int size, ibv_comp_channel* channel = nullptr, int vector = 0) const {
    return ibv_create_cq(end.context, size, nullptr, channel, vector);
  }
  template <typename Change>
  ibv_cq_ex* make_cq_ex(Change change) const {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    change(attr);
    return ibv_create_cq_ex(end.context, &attr);
  }
  template <typename Change>
  ibv_qp* make_qp(Change change) const {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = end.cq;
    attr.qp_type = IBV_QPT_RC;
    // With the first alone the header would call ibv_create_qp.
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    attr.pd = end.pd;
    change(attr);
    return ibv_create_qp_ex(end.context, &attr);
  }
  template <typename Change>
  ibv_srq* make_srq(Change change) const {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
    attr.srq_type = IBV_SRQT_BASIC;
    attr.pd = end.pd;
    change(attr);
    return ibv_create_srq_ex(end.context, &attr);
  }
  template <typename Change>
  ibv_wq* make_wq(Change change) const {
    ibv_wq_init_attr attr{};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = attr.max_sge = 1;
    attr.pd = end.pd;
    attr.cq = end.cq;
    change(attr);
    return ibv_create_wq(end.context, &attr);
  }
  static ibv_rwq_ind_table* make_table(ibv_context* context, ibv_wq* wq, std::uint32_t mask = 0) {
    ibv_rwq_ind_table_init_attr attr{.log_ind_tbl_size = 0, .ind_tbl = &wq, .comp_mask = mask};
    return ibv_create_rwq_ind_table(context, &attr);
  }
  static ibv_xrcd* open_domain(ibv_context* context) {
    ibv_xrcd_init_attr attr{.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                            .fd = -1,
                            .oflags = O_CREAT};
    return ibv_open_xrcd(context, &attr);
  }

  Devices devices{kLimits};
  End end{devices, 0};
  End peer{devices, 1};
  End stranger{devices, 0};
};

TEST_F(Refusals, CompletionQueuesOfWrongSizesAndVectors) {
  EXPECT_EQ(refusal([&] { return make_cq(0); }), EINVAL);
  EXPECT_EQ(refusal([&] { return make_cq(-1); }), EINVAL);
  EXPECT_EQ(refusal([&] { return make_cq(1, nullptr, -1); }), EINVAL);
  EXPECT_EQ(refusal([&] { return make_cq(1, nullptr, end.context->num_comp_vectors); }), EINVAL);
  EXPECT_EQ(refusal([&] { return make_cq(1, stranger.channel); }), EINVAL);
  using Attr = ibv_cq_init_attr_ex;
  EXPECT_EQ(refusal([&] { return make_cq_ex([](Attr& attr) { attr.cqe = 0; }); }), EINVAL);
  EXPECT_EQ(refusal([&] { return make_cq_ex([](Attr& attr) { attr.comp_vector = 1; }); }), EINVAL);
  EXPECT_EQ(
      refusal([&] { return make_cq_ex([&](Attr& attr) { attr.channel = stranger.channel; }); }),
      EINVAL);
  EXPECT_EQ(refusal([&] { return make_cq_ex([](Attr& attr) { attr.comp_mask = 1 << 10; }); }),
            EOPNOTSUPP);
  EXPECT_EQ(refusal([&] {
              return make_cq_ex([](Attr& attr) {
                attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
                attr.flags = 1 << 10;
              });
            }),
            EOPNOTSUPP);
}

TEST_F(Refusals, CompletionQueuesThatAreResizedWrong) {
  EXPECT_EQ(ibv_resize_cq(end.cq, 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(end.cq, -1), EINVAL);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {.remote_addr = peer.address(0), .rkey = peer.mr->rkey};
  for (int i = 0; i < 3; ++i) ASSERT_EQ(end.send(wr, end.piece(0, 8)), 0);
  devices.host.settle();
  EXPECT_EQ(ibv_resize_cq(end.cq, 2), EINVAL);  // three wait to be polled
  EXPECT_EQ(ibv_resize_cq(end.cq, 3), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
}

TEST_F(Refusals, QueuePairsOfWrongTypesAndParents) {
  using Attr = ibv_qp_init_attr_ex;
  const auto why = [&](auto change) { return refusal([&] { return make_qp(change); }); };
  EXPECT_EQ(why([&](Attr& attr) { attr.send_cq = stranger.cq; }), EINVAL);
  EXPECT_EQ(why([&](Attr& attr) { attr.recv_cq = stranger.cq; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.recv_cq = nullptr; }), EINVAL);
  EXPECT_EQ(why([&](Attr& attr) { attr.pd = stranger.pd; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.pd = nullptr; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.comp_mask = 0; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER; }), EOPNOTSUPP);
  EXPECT_EQ(why([](Attr& attr) { attr.comp_mask |= 1 << 20; }), EOPNOTSUPP);
  EXPECT_EQ(why([](Attr& attr) { attr.qp_type = wrong_value<ibv_qp_type>(0); }), EOPNOTSUPP);
  EXPECT_EQ(why([](Attr& attr) { attr.qp_type = wrong_value<ibv_qp_type>(-1); }), EOPNOTSUPP);
  EXPECT_EQ(why([](Attr& attr) { attr.create_flags = IBV_QP_CREATE_SCATTER_FCS; }), EOPNOTSUPP);
  ibv_qp_init_attr target{};
  target.send_cq = target.recv_cq = end.cq;
  target.qp_type = IBV_QPT_XRC_RECV;  // by the call that cannot say of which domain
  EXPECT_EQ(refusal([&] { return ibv_create_qp(end.pd, &target); }), EOPNOTSUPP);
}

/// ibv_create_qp(3): other types than RC and UD have no shared receives.
TEST_F(Refusals, SharedReceivesOfOtherTypes) {
  ibv_srq* const srq = make_srq([](auto&) {});
  ASSERT_NE(srq, nullptr);
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_RAW_PACKET}) {
    EXPECT_EQ(refusal([&] {
                return make_qp([&](ibv_qp_init_attr_ex& attr) {
                  attr.qp_type = type;
                  attr.srq = srq;
                });
              }),
              EINVAL)
        << type;
  }
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
    ibv_qp* const qp = make_qp([&](ibv_qp_init_attr_ex& attr) {
      attr.qp_type = type;
      attr.srq = srq;
    });
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(Refusals, SharedReceiveQueuesOfWrongTypesAndParents) {
  using Attr = ibv_srq_init_attr_ex;
  const auto why = [&](auto change) { return refusal([&] { return make_srq(change); }); };
  EXPECT_EQ(why([](Attr& attr) { attr.comp_mask |= 1 << 20; }), EOPNOTSUPP);
  EXPECT_EQ(why([](Attr& attr) { attr.srq_type = wrong_value<ibv_srq_type>(9); }), EOPNOTSUPP);
  ibv_xrcd* const domain = open_domain(end.context);
  ibv_xrcd* const foreign = open_domain(stranger.context);
  const auto xrc = [&](ibv_xrcd* of, ibv_cq* cq) {
    return [=](Attr& attr) {
      attr.srq_type = IBV_SRQT_XRC;
      attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
      attr.xrcd = of;
      attr.cq = cq;
    };
  };
  for (ibv_pd* pd : {stranger.pd, static_cast<ibv_pd*>(nullptr)}) {
    EXPECT_EQ(why([&](Attr& attr) {
                xrc(domain, end.cq)(attr);
                attr.pd = pd;
              }),
              EINVAL);
  }
  EXPECT_EQ(why(xrc(foreign, end.cq)), EINVAL);
  EXPECT_EQ(why(xrc(domain, stranger.cq)), EINVAL);
  EXPECT_EQ(why([&](Attr& attr) {
              xrc(domain, end.cq)(attr);
              attr.comp_mask &= ~IBV_SRQ_INIT_ATTR_CQ;
            }),
            EINVAL);
  EXPECT_EQ(refusal([&] {
              return make_qp([&](ibv_qp_init_attr_ex& attr) {
                attr.qp_type = IBV_QPT_XRC_RECV;
                attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
                attr.xrcd = foreign;
              });
            }),
            EINVAL);
  ibv_qp_open_attr open{
      .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
      .qp_num = 1,
      .xrcd = foreign,
      .qp_context = nullptr,
      .qp_type = IBV_QPT_XRC_RECV};
  EXPECT_EQ(refusal([&] { return ibv_open_qp(end.context, &open); }), EINVAL);
  open.xrcd = domain;
  open.qp_type = IBV_QPT_RC;
  EXPECT_EQ(refusal([&] { return ibv_open_qp(end.context, &open); }), EINVAL);
  open.comp_mask = IBV_QP_OPEN_ATTR_RESERVED;
  EXPECT_EQ(refusal([&] { return ibv_open_qp(end.context, &open); }), EOPNOTSUPP);
  EXPECT_EQ(ibv_close_xrcd(domain), 0);
  EXPECT_EQ(ibv_close_xrcd(foreign), 0);
}

TEST_F(Refusals, WorkQueuesOfWrongTypesAndParents) {
  using Attr = ibv_wq_init_attr;
  const auto why = [&](auto change) { return refusal([&] { return make_wq(change); }); };
  EXPECT_EQ(why([&](Attr& attr) { attr.pd = stranger.pd; }), EINVAL);
  EXPECT_EQ(why([&](Attr& attr) { attr.cq = stranger.cq; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.cq = nullptr; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.wq_type = wrong_value<ibv_wq_type>(5); }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.comp_mask = IBV_WQ_INIT_ATTR_RESERVED; }), EOPNOTSUPP);
  EXPECT_EQ(why([](Attr& attr) {
              attr.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
              attr.create_flags = IBV_WQ_FLAGS_SCATTER_FCS;
            }),
            EOPNOTSUPP);
  ibv_wq* const wq = make_wq([](auto&) {});
  ASSERT_NE(wq, nullptr);
  EXPECT_EQ(refusal([&] { return make_table(stranger.context, wq); }), EINVAL);
  EXPECT_EQ(refusal([&] { return make_table(end.context, nullptr); }), EINVAL);
  EXPECT_EQ(refusal([&] { return make_table(end.context, wq, 1); }), EOPNOTSUPP);
  ibv_wq_attr attr{};
  attr.attr_mask = IBV_WQ_ATTR_RESERVED;
  EXPECT_EQ(ibv_modify_wq(wq, &attr), EINVAL);
  EXPECT_EQ(wq->state, IBV_WQS_RESET);
  EXPECT_EQ(ibv_destroy_wq(wq), 0);
}

TEST_F(Refusals, RegionsWithWrongRangesAndRights) {
  const auto why = [&](std::size_t length, std::uint64_t iova, unsigned access) {
    return refusal(
        [&] { return ibv_reg_mr_iova2(end.pd, end.memory.data(), length, iova, access); });
  };
  constexpr unsigned kNone = 0;
  EXPECT_EQ(why(0, 0, kNone), EINVAL);
  EXPECT_EQ(why(16, ~std::uint64_t{0} - 8, kNone), EFAULT);  // it would go past the last address
  EXPECT_EQ(why(16, 0, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(why(16, 0, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  for (const unsigned bit : {8U, 9U, 19U, 30U, 31U})
    EXPECT_EQ(why(16, 0, 1U << bit), EINVAL) << bit;
  EXPECT_EQ(refusal([&] { return ibv_reg_dmabuf_mr(end.pd, 0, 4096, 0, -1, 0); }), EBADF);
}

TEST_F(Refusals, RegionsThatAreChangedWrong) {
  std::array<std::byte, 64> room{};
  ibv_mr* const mr = ibv_reg_mr(end.pd, room.data(), room.size(), IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  const std::uint32_t key = mr->lkey;
  const auto change = [&](int flags, ibv_pd* pd, std::size_t length, int access) {
    errno = 0;
    const int error = ibv_rereg_mr(mr, flags, pd, room.data(), length, access);
    EXPECT_EQ(errno, EINVAL);
    return error;
  };
  EXPECT_EQ(change(0, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(change(1 << 3, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(change(IBV_REREG_MR_CHANGE_PD, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(change(IBV_REREG_MR_CHANGE_PD, stranger.pd, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(change(IBV_REREG_MR_CHANGE_ACCESS, nullptr, 0, 1 << 19), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(change(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(mr->lkey, key);
  EXPECT_EQ(mr->pd, end.pd);
  EXPECT_EQ(mr->length, room.size());
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Refusals, AddressHandlesToNowhere) {
  const auto why = [&](auto change) {
    ibv_ah_attr attr = testing::address_of(peer);
    change(attr);
    return refusal([&] { return ibv_create_ah(end.pd, &attr); });
  };
  using Attr = ibv_ah_attr;
  EXPECT_EQ(why([](Attr& attr) { attr.is_global = 0; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.port_num = 0; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.port_num = 2; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.grh.sgid_index = 1; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.grh.sgid_index = 255; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.grh.dgid = {}; }), EINVAL);
  EXPECT_EQ(why([](Attr& attr) { attr.grh.dgid.raw[0] = 0xFE; }), EINVAL);  // IPv6, from IPv4
  ibv_wc wc{};
  ibv_grh grh{};
  EXPECT_EQ(refusal([&] { return ibv_create_ah_from_wc(end.pd, &wc, &grh, 1); }), EINVAL);
  wc.wc_flags = IBV_WC_GRH;  // but the datagram was for somebody else
  EXPECT_EQ(refusal([&] { return ibv_create_ah_from_wc(end.pd, &wc, &grh, 1); }), EINVAL);
  ibv_ah_attr attr{};
  errno = 0;
  EXPECT_EQ(ibv_init_ah_from_wc(end.context, 2, &wc, &grh, &attr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Refusals, MemoryWindowsPastTheLimit) {
  ibv_mw* const first = ibv_alloc_mw(end.pd, IBV_MW_TYPE_1);
  ibv_mw* const second = ibv_alloc_mw(end.pd, IBV_MW_TYPE_2);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(refusal([&] { return ibv_alloc_mw(end.pd, IBV_MW_TYPE_1); }), ENOMEM);
  EXPECT_EQ(ibv_dealloc_mw(first), 0);
  ibv_mw* const third = ibv_alloc_mw(end.pd, IBV_MW_TYPE_1);
  EXPECT_NE(third, nullptr);
  EXPECT_EQ(ibv_dealloc_mw(second), 0);
  EXPECT_EQ(ibv_dealloc_mw(third), 0);
}

/// ibv_dealloc_pd(3), ibv_destroy_cq(3), ibv_free_dm(3): while something is made with it.
TEST_F(Refusals, ParentsStayWhileTheyHaveChildren) {
  ibv_pd* const pd = ibv_alloc_pd(end.context);
  ibv_cq* const cq = make_cq(4);
  ibv_alloc_dm_attr dm_attr{.length = 64, .log_align_req = 0, .comp_mask = 0};
  ibv_dm* const dm = ibv_alloc_dm(end.context, &dm_attr);
  const auto keeps = [&](auto* child, auto destroy, bool holds_cq) {
    ASSERT_NE(child, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    if (holds_cq) {
      EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
    }
    EXPECT_EQ(destroy(child), 0);
  };
  const auto with_pd = [&](auto& attr) {
    attr.pd = pd;
    if constexpr (requires { attr.send_cq; }) attr.send_cq = attr.recv_cq = cq;
    if constexpr (requires { attr.wq_type; }) attr.cq = cq;
  };
  ibv_ah_attr to = testing::address_of(peer);
  ibv_parent_domain_init_attr parent{};
  parent.pd = pd;
  keeps(ibv_reg_mr(pd, end.memory.data(), 64, 0), ibv_dereg_mr, false);
  keeps(ibv_alloc_null_mr(pd), ibv_dereg_mr, false);
  keeps(ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_dealloc_mw, false);
  keeps(ibv_create_ah(pd, &to), ibv_destroy_ah, false);
  keeps(make_srq(with_pd), ibv_destroy_srq, false);
  keeps(make_qp(with_pd), ibv_destroy_qp, true);
  keeps(make_wq(with_pd), [](ibv_wq* wq) { return ibv_destroy_wq(wq); }, true);
  keeps(ibv_alloc_parent_domain(end.context, &parent), ibv_dealloc_pd, false);
  ibv_mr* const on_device = ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(on_device, nullptr);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  keeps(on_device, ibv_dereg_mr, false);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(Refusals, WhatTheDeviceDoesNotHave) {
  ibv_counters_init_attr counters{};
  EXPECT_EQ(refusal([&] { return ibv_create_counters(end.context, &counters); }), EOPNOTSUPP);
  ibv_flow_action_esp_attr esp{};
  EXPECT_EQ(refusal([&] { return ibv_create_flow_action_esp(end.context, &esp); }), EOPNOTSUPP);
  ibv_ah_attr to = testing::address_of(peer);
  std::array<std::uint8_t, ETHERNET_LL_SIZE> mac{};
  std::uint16_t vlan = 0;
  errno = 0;
  EXPECT_EQ(ibv_resolve_eth_l2_from_gid(end.context, &to, mac.data(), &vlan), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_values_ex values{};
  values.comp_mask = 1 << 5;
  EXPECT_EQ(ibv_query_rt_values_ex(end.context, &values), EOPNOTSUPP);
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(end.context, 1, 0, &entry, 1), EINVAL);
  EXPECT_EQ(ibv_query_gid_table(end.context, &entry, 1, 1), -EINVAL);
}

}  // namespace
}  // namespace verbena::compat
