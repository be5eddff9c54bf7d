// SPDX-License-Identifier: Apache-2.0
#include <endian.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

class RcTest : public ::testing::Test {
 protected:
  RcTest() { testing::connect(a, b); }

  Devices devices;
  End a{devices, 0};
  End b{devices, 1};
};

ibv_send_wr work(std::uint64_t id, ibv_wr_opcode opcode) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

ibv_send_wr remote_work(std::uint64_t id, ibv_wr_opcode opcode, const End& to, std::size_t offset) {
  ibv_send_wr wr = work(id, opcode);
  wr.wr.rdma.remote_addr = to.address(offset);
  wr.wr.rdma.rkey = to.mr->rkey;
  return wr;
}

TEST_F(RcTest, SendWithImmediateFillsTheCompletion) {
  std::memset(a.memory.data(), 0x5A, 3000);
  ASSERT_EQ(b.receive(7, b.piece(100, 4000)), 0);
  ibv_send_wr wr = work(8, IBV_WR_SEND_WITH_IMM);
  wr.imm_data = htobe32(0x01020304);
  ASSERT_EQ(a.send(wr, a.piece(0, 3000)), 0);

  const ibv_wc received = b.await();
  EXPECT_EQ(received.wr_id, 7U);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, 3000U);
  EXPECT_EQ(received.imm_data, htobe32(0x01020304));
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(received.qp_num, b.qp->qp_num);
  EXPECT_EQ(std::memcmp(b.memory.data() + 100, a.memory.data(), 3000), 0);

  const ibv_wc sent = a.await();
  EXPECT_EQ(sent.wr_id, 8U);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.qp_num, a.qp->qp_num);
}

TEST_F(RcTest, TheSendQueueDrainsUntilWhatWasBegunHasEnded) {
  const auto query = [this] {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
    return attr;
  };
  ASSERT_EQ(a.send(work(1, IBV_WR_SEND), a.piece(0, 8)), 0);  // which finds no receive
  devices.host.settle();
  EXPECT_EQ(query().sq_draining, 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(a.send(work(2, IBV_WR_SEND), a.piece(0, 8)), 0);
  EXPECT_EQ(query().qp_state, IBV_QPS_SQD);
  EXPECT_EQ(query().sq_draining, 1);
  ASSERT_EQ(b.receive(3, b.piece(0, 8)), 0);
  EXPECT_EQ(a.await().wr_id, 1U);
  EXPECT_EQ(query().sq_draining, 0) << "what was not begun waits";
}

TEST_F(RcTest, WriteReadAndAtomics) {
  std::memset(a.memory.data(), 0x11, 5000);
  ASSERT_EQ(a.send(remote_work(1, IBV_WR_RDMA_WRITE, b, 0), a.piece(0, 5000)), 0);
  EXPECT_EQ(a.await().opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(b.memory.data(), a.memory.data(), 5000), 0);

  ASSERT_EQ(a.send(remote_work(2, IBV_WR_RDMA_READ, b, 0), a.piece(8192, 5000)), 0);
  const ibv_wc read = a.await();
  EXPECT_EQ(read.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(read.status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a.memory.data() + 8192, b.memory.data(), 5000), 0);

  std::uint64_t word = 40;
  std::memcpy(b.memory.data() + 16384, &word, sizeof word);
  ibv_send_wr add = work(3, IBV_WR_ATOMIC_FETCH_AND_ADD);
  add.wr.atomic = {
      .remote_addr = b.address(16384), .compare_add = 2, .swap = 0, .rkey = b.mr->rkey};
  ASSERT_EQ(a.send(add, a.piece(0, 8)), 0);
  EXPECT_EQ(a.await().opcode, IBV_WC_FETCH_ADD);
  ibv_send_wr swap = work(4, IBV_WR_ATOMIC_CMP_AND_SWP);
  swap.wr.atomic = {
      .remote_addr = b.address(16384), .compare_add = 42, .swap = 99, .rkey = b.mr->rkey};
  ASSERT_EQ(a.send(swap, a.piece(8, 8)), 0);
  EXPECT_EQ(a.await().opcode, IBV_WC_COMP_SWAP);
  std::array<std::uint64_t, 2> was{};
  std::memcpy(was.data(), a.memory.data(), sizeof was);
  std::memcpy(&word, b.memory.data() + 16384, sizeof word);
  EXPECT_EQ(was[0], 40U);
  EXPECT_EQ(was[1], 42U);
  EXPECT_EQ(word, 99U);
}

TEST_F(RcTest, AChainStopsAtTheFirstBadRequest) {
  ibv_sge piece = a.piece(0, 8);
  std::array<ibv_send_wr, 3> chain{};
  for (std::size_t i = 0; i < chain.size(); ++i) {
    chain[i] = remote_work(i, IBV_WR_RDMA_WRITE, b, 0);
    chain[i].sg_list = &piece;
    chain[i].num_sge = 1;
    chain[i].next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
  }
  chain[1].num_sge = 5;  // four were granted
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a.qp, chain.data(), &bad), EINVAL);
  EXPECT_EQ(bad, &chain[1]);
  EXPECT_EQ(a.await().wr_id, 0U);  // what went before it stays posted
  devices.host.settle();
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(a.cq, 1, &wc), 0);
}

TEST_F(RcTest, OpcodesThatThereAreNot) {
  EXPECT_EQ(a.send(work(1, IBV_WR_BIND_MW), a.piece(0, 8)), EINVAL);
  EXPECT_EQ(a.send(work(1, IBV_WR_TSO), a.piece(0, 8)), EINVAL);
  EXPECT_EQ(a.send(work(1, testing::wrong_value<ibv_wr_opcode>(77)), a.piece(0, 8)), EINVAL);
  EXPECT_EQ(a.send(work(1, testing::wrong_value<ibv_wr_opcode>(-1)), a.piece(0, 8)), EINVAL);
}

TEST_F(RcTest, FullQueuesSayEnomem) {
  int error = 0;
  for (int i = 0; i < 100 && error == 0; ++i) error = b.receive(0, b.piece(0, 8));
  EXPECT_EQ(error, ENOMEM);
  error = 0;
  devices.network.lose = [](const auto&) { return true; };
  for (int i = 0; i < 100 && error == 0; ++i) error = a.send(work(0, IBV_WR_SEND), a.piece(0, 8));
  EXPECT_EQ(error, ENOMEM);
}

TEST_F(RcTest, InlineDataMayBeReusedAtOnce) {
  ASSERT_EQ(b.receive(1, b.piece(0, 64)), 0);
  std::array<char, 16> text{"inline data"};
  ibv_send_wr wr = work(2, IBV_WR_SEND);
  wr.send_flags |= IBV_SEND_INLINE;
  // The key of inline data is not looked at.
  ASSERT_EQ(
      a.send(wr,
             {.addr = reinterpret_cast<std::uint64_t>(text.data()), .length = 16, .lkey = 0xBAD}),
      0);
  text.fill('x');
  EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<const char*>(b.memory.data()), "inline data");
}

TEST_F(RcTest, AnErrorCompletionCarriesItsStatus) {
  ibv_send_wr wr = remote_work(5, IBV_WR_RDMA_WRITE, b, 0);
  wr.wr.rdma.rkey ^= 1;
  ASSERT_EQ(a.send(wr, a.piece(0, 8)), 0);
  const ibv_wc failed = a.await();
  EXPECT_EQ(failed.wr_id, 5U);
  EXPECT_EQ(failed.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(failed.qp_num, a.qp->qp_num);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

TEST_F(RcTest, ABatchLargerThanTheQueueIsPolledInPieces) {
  for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(b.receive(i, b.piece(0, 8)), 0);
  for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(a.send(work(i, IBV_WR_SEND), a.piece(0, 8)), 0);
  devices.host.settle();
  std::array<ibv_wc, 100> wc{};
  ASSERT_EQ(ibv_poll_cq(b.cq, 100, wc.data()), 16);
  for (std::uint64_t i = 0; i < 16; ++i) EXPECT_EQ(wc[i].wr_id, i);
  EXPECT_EQ(ibv_poll_cq(b.cq, 0, wc.data()), 0);
}

class UdTest : public ::testing::Test {
 protected:
  UdTest() {
    testing::bring_up(a);
    testing::bring_up(b);
  }
  static ibv_send_wr datagram(ibv_ah* ah, const End& to) {
    ibv_send_wr wr = work(1, IBV_WR_SEND);
    wr.wr.ud = {.ah = ah, .remote_qpn = to.qp->qp_num, .remote_qkey = testing::kQkey};
    return wr;
  }

  Devices devices;
  End a{devices, 0, IBV_QPT_UD};
  End b{devices, 1, IBV_QPT_UD};
};

TEST_F(UdTest, ADatagramBringsItsHeaderAndCanBeAnswered) {
  ibv_ah_attr attr = testing::address_of(b);
  ibv_ah* const ah = ibv_create_ah(a.pd, &attr);
  ASSERT_NE(ah, nullptr);
  std::memset(a.memory.data(), 0x77, 500);
  ASSERT_EQ(b.receive(3, b.piece(0, 1024)), 0);
  ASSERT_EQ(a.send(datagram(ah, b), a.piece(0, 500)), 0);
  ibv_wc received = b.await();
  EXPECT_EQ(received.byte_len, 540U);
  EXPECT_EQ(received.src_qp, a.qp->qp_num);
  EXPECT_NE(received.wc_flags & IBV_WC_GRH, 0U);
  EXPECT_EQ(received.sl, 0xA);
  EXPECT_EQ(std::memcmp(b.memory.data() + 40, a.memory.data(), 500), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);

  auto* const grh = reinterpret_cast<ibv_grh*>(b.memory.data());
  ibv_ah_attr back{};
  ASSERT_EQ(ibv_init_ah_from_wc(b.context, 1, &received, grh, &back), 0);
  EXPECT_EQ(std::memcmp(back.grh.dgid.raw, a.gid.raw, 16), 0);
  EXPECT_EQ(back.is_global, 1);
  ibv_ah* const answer = ibv_create_ah_from_wc(b.pd, &received, grh, 1);
  ASSERT_NE(answer, nullptr);
  ASSERT_EQ(a.receive(4, a.piece(0, 1024)), 0);
  ASSERT_EQ(b.send(datagram(answer, a), b.piece(40, 500)), 0);
  EXPECT_EQ(a.await().src_qp, b.qp->qp_num);
  EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_destroy_ah(answer), 0);
}

TEST_F(UdTest, WhatUdDoesNotTake) {
  EXPECT_EQ(a.send(datagram(nullptr, b), a.piece(0, 8)), EINVAL);
  ibv_send_wr wr = datagram(nullptr, b);
  wr.opcode = IBV_WR_RDMA_WRITE;
  EXPECT_EQ(a.send(wr, a.piece(0, 8)), EINVAL);
  ibv_ah_attr attr = testing::address_of(b);
  attr.is_global = 0;
  EXPECT_EQ(ibv_create_ah(a.pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::compat
