// SPDX-License-Identifier: Apache-2.0
//
// Memory windows of both types through the C ABI: what a peer may reach, and when no longer.
#include <gtest/gtest.h>

#include <cerrno>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::connect;
using testing::Devices;
using testing::End;

class MemoryWindows : public ::testing::Test {
 protected:
  MemoryWindows() {
    EXPECT_EQ(ibv_dereg_mr(owner.mr), 0);
    owner.mr = ibv_reg_mr(owner.pd, owner.memory.data(), owner.memory.size(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    connect(owner, peer);
  }

  ibv_mw_bind_info part(std::size_t offset, std::uint64_t length, unsigned access) const {
    return {
        .mr = owner.mr, .addr = owner.address(offset), .length = length, .mw_access_flags = access};
  }
  /// Type 1.
  int bind(ibv_mw* mw, const ibv_mw_bind_info& info) const {
    ibv_mw_bind to{.wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
    return ibv_bind_mw(owner.qp, mw, &to);
  }
  /// Type 2.
  int bind(ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& info) const {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw = {.mw = mw, .rkey = rkey, .bind_info = info};
    return post(owner, wr);
  }
  static int post(const End& end, ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(end.qp, &wr, &bad);
  }
  int invalidate(std::uint32_t rkey) const {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = rkey;
    return post(owner, wr);
  }
  /// How the peer's WRITE of some bytes ends.
  ibv_wc_status write(std::uint32_t rkey, std::uint64_t address, std::uint32_t length = 8) const {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {.remote_addr = address, .rkey = rkey};
    EXPECT_EQ(peer.send(wr, peer.piece(0, length)), 0);
    return peer.await().status;
  }

  Devices devices;
  End owner{devices, 0};
  End peer{devices, 1};
};

TEST_F(MemoryWindows, OfType1OpenWhatTheyWereBoundToLast) {
  ibv_mw* const mw = ibv_alloc_mw(owner.pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  const std::uint32_t first = mw->rkey;
  ASSERT_EQ(bind(mw, part(100, 50, IBV_ACCESS_REMOTE_WRITE)), 0);
  EXPECT_NE(mw->rkey, first);
  const ibv_wc bound = owner.await();
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(write(mw->rkey, owner.address(142)), IBV_WC_SUCCESS);
  ASSERT_EQ(bind(mw, part(200, 50, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED)), 0);
  EXPECT_EQ(owner.await().status, IBV_WC_SUCCESS);
  peer.memory[0] = std::byte{9};
  EXPECT_EQ(write(mw->rkey, 5), IBV_WC_SUCCESS);
  EXPECT_EQ(owner.memory[205], std::byte{9});

  EXPECT_EQ(ibv_dereg_mr(owner.mr), EBUSY);
  EXPECT_EQ(write(mw->rkey, 43), IBV_WC_REM_ACCESS_ERR);  // beyond its end
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(MemoryWindows, OfType2AreInvalidatedByTheirOwnerOrByThePeer) {
  ibv_mw* const mw = ibv_alloc_mw(owner.pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  std::uint32_t rkey = mw->rkey;
  const auto open = part(0, 100, IBV_ACCESS_REMOTE_WRITE);
  ASSERT_EQ(bind(mw, rkey, open), 0);
  EXPECT_EQ(owner.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(rkey, owner.address(0)), IBV_WC_SUCCESS);
  ASSERT_EQ(invalidate(rkey), 0);
  const ibv_wc gone = owner.await();
  EXPECT_EQ(gone.status, IBV_WC_SUCCESS);
  EXPECT_EQ(gone.opcode, IBV_WC_LOCAL_INV);

  rkey = ibv_inc_rkey(rkey);
  ASSERT_EQ(bind(mw, rkey, open), 0);
  EXPECT_EQ(owner.await().status, IBV_WC_SUCCESS);
  ASSERT_EQ(owner.receive(3, owner.piece(1000, 100)), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = rkey;
  ASSERT_EQ(peer.send(wr, peer.piece(0, 8)), 0);
  EXPECT_EQ(peer.await().status, IBV_WC_SUCCESS);
  const ibv_wc received = owner.await();
  EXPECT_EQ(received.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
  EXPECT_EQ(received.invalidated_rkey, rkey);
  EXPECT_EQ(ibv_dereg_mr(owner.mr), 0);  // nothing is bound any more
  owner.mr = ibv_reg_mr(owner.pd, owner.memory.data(), 100, 0);
  EXPECT_EQ(write(rkey, owner.address(0)), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(MemoryWindows, RequestsBehindABindingFindIt) {
  ibv_mw* const mw = ibv_alloc_mw(owner.pd, IBV_MW_TYPE_2);
  ASSERT_EQ(peer.receive(1, peer.piece(0, 100)), 0);
  ASSERT_EQ(peer.receive(2, peer.piece(0, 100)), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(owner.send(wr, owner.piece(0, 8)), 0);
  ASSERT_EQ(bind(mw, mw->rkey, part(0, 100, IBV_ACCESS_REMOTE_WRITE)), 0);
  wr.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(owner.send(wr, owner.piece(0, 8)), 0);
  // Completions come in the order of the requests.
  EXPECT_EQ(owner.await().opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(owner.await().opcode, IBV_WC_SEND);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(MemoryWindows, AFailedBindingEndsTheQueuePair) {
  ibv_mw* const mw = ibv_alloc_mw(owner.pd, IBV_MW_TYPE_2);
  ASSERT_EQ(bind(mw, mw->rkey, part(0, owner.memory.size() + 1, IBV_ACCESS_REMOTE_WRITE)), 0);
  EXPECT_EQ(owner.await().status, IBV_WC_MW_BIND_ERR);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(owner.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(MemoryWindows, AKeyThatIsNoneOrARegionsCannotBeInvalidated) {
  ASSERT_EQ(invalidate(owner.mr->rkey), 0);
  EXPECT_EQ(owner.await().status, IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(MemoryWindows, WrongValuesAreRefused) {
  EXPECT_EQ(ibv_alloc_mw(owner.pd, testing::wrong_value<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_mw* const first = ibv_alloc_mw(owner.pd, IBV_MW_TYPE_1);
  ibv_mw* const second = ibv_alloc_mw(owner.pd, IBV_MW_TYPE_2);
  const auto good = part(0, 8, IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(bind(second, good), EINVAL);              // of type 2 by ibv_bind_mw
  EXPECT_EQ(bind(first, first->rkey, good), EINVAL);  // of type 1 by a request
  EXPECT_EQ(bind(second, second->rkey ^ 0x100, good), EINVAL);
  EXPECT_EQ(bind(first, part(0, 8, IBV_ACCESS_MW_BIND)), EINVAL);
  auto nowhere = good;
  nowhere.mr = nullptr;
  EXPECT_EQ(bind(first, nowhere), EINVAL);
  ibv_pd* const other = ibv_alloc_pd(owner.context);
  ibv_mw* const stranger = ibv_alloc_mw(other, IBV_MW_TYPE_1);
  EXPECT_EQ(bind(stranger, good), EPERM);  // says the header
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  for (ibv_mw* mw : {first, second, stranger}) EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

}  // namespace
}  // namespace verbena::compat
