// SPDX-License-Identifier: Apache-2.0
//
// ATOMIC WRITE through both ways to post.
#include <gtest/gtest.h>

#include <cerrno>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

class AtomicWrite : public ::testing::Test {
 protected:
  AtomicWrite() {
    EXPECT_EQ(ibv_destroy_qp(a.qp), 0);
    a.qp = make(IBV_QPT_RC);
    EXPECT_NE(a.qp, nullptr);
    testing::connect(a, b);
  }

  /// For the extended way to post, with no room for inline data.
  ibv_qp* make(ibv_qp_type type) const {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = a.cq;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 2,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    init.qp_type = type;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = a.pd;
    init.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
    errno = 0;
    return ibv_create_qp_ex(a.context, &init);
  }
  [[nodiscard]] std::uint64_t word(std::size_t offset) const {
    std::uint64_t value = 0;
    std::memcpy(&value, b.memory.data() + offset, sizeof value);
    return value;
  }
  int post(std::uint32_t length) const {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_ATOMIC_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {.remote_addr = b.address(80), .rkey = b.mr->rkey};
    return a.send(wr, a.piece(0, length));
  }

  Devices devices;
  End a{devices, 0};
  End b{devices, 1};
};

TEST_F(AtomicWrite, TakesItsBytesWhenItIsBuilt) {
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a.qp);
  std::uint64_t value = 0x1122334455667788;
  ibv_wr_start(qp);
  qp->wr_id = 5;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_write(qp, b.mr->rkey, b.address(72), &value);
  value = 0;
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  const ibv_wc done = a.await();
  EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  EXPECT_EQ(done.opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_EQ(done.wr_id, 5U);
  EXPECT_EQ(word(72), 0x1122334455667788U);
}

TEST_F(AtomicWrite, CanBePostedWithAGatherList) {
  const std::uint64_t value = 99;
  std::memcpy(a.memory.data(), &value, sizeof value);
  ASSERT_EQ(post(8), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(word(80), 99U);
  ibv_send_wr none{};
  none.opcode = IBV_WR_ATOMIC_WRITE;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a.qp, &none, &bad), EINVAL);
  ASSERT_EQ(post(4), 0);
  EXPECT_EQ(a.await().status, IBV_WC_LOC_LEN_ERR);
}

TEST_F(AtomicWrite, IsForReliableConnectionsOnly) {
  EXPECT_EQ(make(IBV_QPT_UC), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(make(IBV_QPT_UD), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::compat
