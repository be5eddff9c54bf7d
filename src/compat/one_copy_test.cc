// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

struct NearDevices : Devices {
  NearDevices() { host.near = host.opens_memory = host.shares_memory = true; }
};

/// Two ends that have each other's memory. Both have done a WRITE, so that the next one, and any
/// READ, is tried before it gets a place in the send queue.
class OneCopy : public ::testing::Test {
 protected:
  OneCopy() {
    testing::connect(a, b);
    EXPECT_EQ(post(1, IBV_WR_RDMA_WRITE, a.piece(0, 8)), 0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(Qp::of(a.qp).pair->copies());
  }

  [[nodiscard]] static ibv_send_wr work(std::uint64_t id, ibv_wr_opcode opcode) {
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    return wr;
  }
  [[nodiscard]] ibv_send_wr near_work(std::uint64_t id, ibv_wr_opcode opcode) const {
    ibv_send_wr wr = work(id, opcode);
    wr.wr.rdma.remote_addr = b.address(kThere);
    wr.wr.rdma.rkey = b.mr->rkey;
    return wr;
  }
  [[nodiscard]] int post(std::uint64_t id, ibv_wr_opcode opcode, const ibv_sge& piece) const {
    return a.send(near_work(id, opcode), piece);
  }
  [[nodiscard]] std::uint64_t copies() const {
    return Context::of(a.context).nic->counters().direct_requests;
  }
  void expect_completion(std::uint64_t id, ibv_wc_opcode opcode) const {
    const ibv_wc completion = a.await();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.wr_id, id);
    EXPECT_EQ(completion.opcode, opcode);
    EXPECT_EQ(completion.qp_num, a.qp->qp_num);
  }

  static constexpr std::size_t kThere = 256;
  NearDevices devices;
  End a{devices, 0};
  End b{devices, 1};
};

TEST_F(OneCopy, MakesAWrite) {
  std::memset(a.memory.data(), 0x5A, 64);
  ASSERT_EQ(post(2, IBV_WR_RDMA_WRITE, a.piece(0, 64)), 0);
  EXPECT_EQ(std::memcmp(b.memory.data() + kThere, a.memory.data(), 64), 0);
  EXPECT_EQ(copies(), 2U);
  expect_completion(2, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(devices.network.sent(), 0U);
}

TEST_F(OneCopy, MakesARead) {
  std::memset(b.memory.data() + kThere, 0x3C, 64);
  ASSERT_EQ(post(2, IBV_WR_RDMA_READ, a.piece(8, 64)), 0);
  EXPECT_EQ(std::memcmp(b.memory.data() + kThere, a.memory.data() + 8, 64), 0);
  EXPECT_EQ(copies(), 2U);
  expect_completion(2, IBV_WC_RDMA_READ);
}

TEST_F(OneCopy, IsSilentWhereThatIsWanted) {
  a.memory[0] = std::byte{7};
  ibv_send_wr wr = near_work(2, IBV_WR_RDMA_WRITE);
  wr.send_flags = 0;
  ASSERT_EQ(a.send(wr, a.piece(0, 1)), 0);
  EXPECT_EQ(b.memory[kThere], std::byte{7});
  ibv_wc completion{};
  EXPECT_EQ(ibv_poll_cq(a.cq, 1, &completion), 0);
  EXPECT_EQ(copies(), 2U);
}

TEST_F(OneCopy, IsMadeOfSeveralPiecesAndOfInlineDataToo) {
  std::memset(a.memory.data(), 0x11, 16);
  std::memset(a.memory.data() + 100, 0x22, 16);
  std::array<ibv_sge, 2> pieces = {a.piece(0, 16), a.piece(100, 16)};
  ibv_send_wr wr = near_work(2, IBV_WR_RDMA_WRITE);
  wr.sg_list = pieces.data();
  wr.num_sge = 2;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.qp, &wr, &bad), 0);
  expect_completion(2, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(b.memory[kThere + 15], std::byte{0x11});
  EXPECT_EQ(b.memory[kThere + 16], std::byte{0x22});

  std::uint64_t own = 0x0123456789ABCDEF;  // of no region
  wr = near_work(3, IBV_WR_RDMA_WRITE);
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(
      a.send(wr, {.addr = reinterpret_cast<std::uint64_t>(&own), .length = sizeof own, .lkey = 0}),
      0);
  expect_completion(3, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(b.memory.data() + kThere, &own, sizeof own), 0);
  EXPECT_EQ(copies(), 3U);
}

TEST_F(OneCopy, AListIsPostedWhole) {
  ibv_sge piece = a.piece(0, 8);
  ibv_send_wr second = near_work(3, IBV_WR_RDMA_WRITE);
  ibv_send_wr first = near_work(2, IBV_WR_RDMA_WRITE);
  first.sg_list = second.sg_list = &piece;
  first.num_sge = second.num_sge = 1;
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.qp, &first, &bad), 0);
  expect_completion(2, IBV_WC_RDMA_WRITE);
  expect_completion(3, IBV_WC_RDMA_WRITE);
}

TEST_F(OneCopy, WithAWrongKeyOfItsOwnFails) {
  ibv_sge piece = a.piece(0, 8);
  piece.lkey ^= 1;
  ASSERT_EQ(post(2, IBV_WR_RDMA_WRITE, piece), 0);
  const ibv_wc completion = a.await();
  EXPECT_EQ(completion.wr_id, 2U);
  EXPECT_EQ(completion.status, IBV_WC_LOC_PROT_ERR);
  ASSERT_EQ(post(3, IBV_WR_RDMA_WRITE, a.piece(0, 8)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(OneCopy, WithAWrongKeyOfThePeersIsRefusedByIt) {
  b.memory[kThere] = std::byte{9};
  ibv_send_wr wr = near_work(2, IBV_WR_RDMA_WRITE);
  wr.wr.rdma.rkey ^= 1;
  ASSERT_EQ(a.send(wr, a.piece(0, 8)), 0);
  const ibv_wc completion = a.await();
  EXPECT_EQ(completion.wr_id, 2U);
  EXPECT_EQ(completion.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(b.memory[kThere], std::byte{9});
}

TEST_F(OneCopy, BelongsToItsState) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(post(2, IBV_WR_RDMA_WRITE, a.piece(0, 8)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_WR_FLUSH_ERR);
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(post(3, IBV_WR_RDMA_WRITE, a.piece(0, 8)), EINVAL);
  testing::connect(a, b);
  a.memory[0] = std::byte{4};
  ASSERT_EQ(post(4, IBV_WR_RDMA_WRITE, a.piece(0, 1)), 0);
  expect_completion(4, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(b.memory[kThere], std::byte{4});
}

TEST_F(OneCopy, WaitsForWhatIsUnderWay) {
  ASSERT_EQ(b.receive(1, b.piece(0, 8)), 0);
  a.memory[0] = std::byte{5};
  ASSERT_EQ(a.send(work(2, IBV_WR_SEND), a.piece(0, 1)), 0);
  ASSERT_EQ(post(3, IBV_WR_RDMA_WRITE, a.piece(0, 1)), 0);
  EXPECT_NE(b.memory[kThere], std::byte{5}) << "before the SEND is acknowledged";
  expect_completion(2, IBV_WC_SEND);
  expect_completion(3, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(b.memory[kThere], std::byte{5});
}

TEST_F(OneCopy, WhatIsNoRequestIsRefused) {
  ibv_send_wr wr = near_work(2, IBV_WR_RDMA_WRITE);
  wr.num_sge = 1;  // of none
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a.qp, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  wr.opcode = testing::wrong_value<ibv_wr_opcode>(77);
  EXPECT_EQ(a.send(wr, a.piece(0, 8)), EINVAL);
}

}  // namespace
}  // namespace verbena::compat
