// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::bring_up;
using testing::Devices;
using testing::End;
using testing::kQkey;

constexpr std::uint32_t kMulticastQp = 0xFFFFFF;
constexpr nic::Limits kSmall{.max_mcast_grp = 2, .max_mcast_qp_attach = 1};

ibv_gid gid_of(const char* text) {
  ibv_gid gid{};
  EXPECT_EQ(inet_pton(AF_INET6, text, gid.raw), 1);
  return gid;
}

class Multicast : public ::testing::Test {
 protected:
  Multicast() {
    for (const End* const end : {&a, &b}) bring_up(*end);
  }
  void send(const End& from, ibv_ah* to, std::uint32_t number = kMulticastQp) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {.ah = to, .remote_qpn = number, .remote_qkey = kQkey};
    ASSERT_EQ(from.send(wr, from.piece(0, 16)), 0);
    EXPECT_EQ(from.await().opcode, IBV_WC_SEND);
  }
  static ibv_ah* handle(const End& end, const ibv_gid& to) {
    ibv_ah_attr attr{};
    attr.grh.dgid = to;
    attr.is_global = 1;
    attr.port_num = 1;
    return ibv_create_ah(end.pd, &attr);
  }

  const ibv_gid group = gid_of("::ffff:239.1.1.1");
  Devices devices{kSmall};
  End a{devices, 0, IBV_QPT_UD};
  End b{devices, 1, IBV_QPT_UD};
};

TEST_F(Multicast, WhoIsAttachedReceivesAndCanAnswer) {
  ASSERT_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);
  ASSERT_EQ(ibv_attach_mcast(b.qp, &group, 7), 0);
  ASSERT_EQ(b.receive(5, b.piece(0, 128)), 0);
  ibv_ah* const to_group = handle(a, group);
  ASSERT_NE(to_group, nullptr);
  send(a, to_group);
  ibv_wc wc = b.await();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 5U);
  EXPECT_EQ(wc.byte_len, 56U);
  EXPECT_EQ(wc.src_qp, a.qp->qp_num);
  EXPECT_NE(wc.wc_flags & IBV_WC_GRH, 0U);
  EXPECT_EQ(std::memcmp(b.memory.data() + 36, group.raw + 12, 4), 0);

  auto* const grh = reinterpret_cast<ibv_grh*>(b.memory.data());
  ibv_ah_attr attr{};
  ASSERT_EQ(ibv_init_ah_from_wc(b.context, 1, &wc, grh, &attr), 0);
  EXPECT_EQ(std::memcmp(&attr.grh.dgid, &a.gid, sizeof a.gid), 0);
  EXPECT_EQ(attr.grh.sgid_index, 0);
  ibv_ah* const answer = ibv_create_ah_from_wc(b.pd, &wc, grh, 1);
  ASSERT_NE(answer, nullptr);
  ASSERT_EQ(a.receive(6, a.piece(0, 128)), 0);
  send(b, answer, wc.src_qp);
  EXPECT_EQ(a.await().wr_id, 6U);

  EXPECT_EQ(ibv_detach_mcast(b.qp, &group, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(answer), 0);
  EXPECT_EQ(ibv_destroy_ah(to_group), 0);
}

TEST_F(Multicast, ErrorsAreThoseOfTheManualAndOfLinux) {
  EXPECT_EQ(ibv_attach_mcast(a.qp, &a.gid, 0), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(a.qp, &group, 0), EINVAL);
  const End connected(devices, 0);
  EXPECT_EQ(ibv_attach_mcast(connected.qp, &group, 0), EINVAL);
  ASSERT_EQ(ibv_attach_mcast(a.qp, &group, 0), 0);
  EXPECT_EQ(ibv_destroy_qp(a.qp), EBUSY);
  EXPECT_EQ(ibv_detach_mcast(a.qp, &group, 0), 0);
}

TEST_F(Multicast, LimitsAreWhatTheDeviceTells) {
  ibv_device_attr told{};
  ASSERT_EQ(ibv_query_device(a.context, &told), 0);
  EXPECT_EQ(told.max_mcast_grp, 2);
  EXPECT_EQ(told.max_mcast_qp_attach, 1);
  EXPECT_EQ(told.max_total_mcast_qp_attach, 2);
  const ibv_gid second = gid_of("ff0e::2");
  const ibv_gid third = gid_of("ff0e::3");
  EXPECT_EQ(ibv_attach_mcast(a.qp, &group, 0), 0);
  EXPECT_EQ(ibv_attach_mcast(a.qp, &second, 0), 0);
  EXPECT_EQ(ibv_attach_mcast(a.qp, &third, 0), ENOMEM);
  EXPECT_EQ(ibv_detach_mcast(a.qp, &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(a.qp, &second, 0), 0);
}

TEST_F(Multicast, AClosedDeviceLeavesItsGroups) {
  ASSERT_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);
  b.leave_behind();  // the network sees that it leaves, once
}

TEST_F(Multicast, OwnOnesCanBeBlocked) {
  ASSERT_EQ(ibv_destroy_qp(a.qp), 0);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = a.cq;
  init.qp_type = IBV_QPT_UD;
  init.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  init.pd = a.pd;
  init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  a.qp = ibv_create_qp_ex(a.context, &init);
  ASSERT_NE(a.qp, nullptr);
  bring_up(a);
  for (const End* const end : {&a, &b}) {
    ASSERT_EQ(ibv_attach_mcast(end->qp, &group, 0), 0);
    ASSERT_EQ(end->receive(1, end->piece(0, 128)), 0);
  }
  ibv_ah* const from_a = handle(a, group);
  ibv_ah* const from_b = handle(b, group);
  send(a, from_a);
  EXPECT_EQ(b.await().src_qp, a.qp->qp_num);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(a.cq, 1, &wc), 0);
  ASSERT_EQ(b.receive(2, b.piece(0, 128)), 0);
  send(b, from_b);
  EXPECT_EQ(b.await().src_qp, b.qp->qp_num);  // this one does not
  EXPECT_EQ(a.await().src_qp, b.qp->qp_num);

  for (const End* const end : {&a, &b}) EXPECT_EQ(ibv_detach_mcast(end->qp, &group, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(from_a), 0);
  EXPECT_EQ(ibv_destroy_ah(from_b), 0);

  init.qp_type = IBV_QPT_RC;
  EXPECT_EQ(ibv_create_qp_ex(a.context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace verbena::compat
