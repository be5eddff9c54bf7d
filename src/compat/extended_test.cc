// SPDX-License-Identifier: Apache-2.0
// The extended interfaces: ibv_wr_post(3) and ibv_create_cq_ex(3).
#include <endian.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

/// An end whose queue pair was made for ibv_wr_*, on a completion queue that is read field by
/// field.
class ExtendedEnd : public End {
 public:
  ExtendedEnd(Devices& the_devices, int index, std::uint64_t wc_flags = IBV_WC_STANDARD_FLAGS,
              std::uint32_t cq_flags = 0, std::uint32_t entries = 64)
      : End(the_devices, index) {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    ibv_cq_init_attr_ex cq_attr{};
    cq_attr.cqe = entries;
    cq_attr.channel = channel;
    cq_attr.wc_flags = wc_flags;
    cq_attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    cq_attr.flags = cq_flags;
    cq_ex = ibv_create_cq_ex(context, &cq_attr);
    EXPECT_NE(cq_ex, nullptr);
    cq = ibv_cq_ex_to_cq(cq_ex);
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 64};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                          IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    qp = ibv_create_qp_ex(context, &attr);
    EXPECT_NE(qp, nullptr);
    builder = ibv_qp_to_qp_ex(qp);
    EXPECT_NE(builder, nullptr);
  }

  /// Posts a signalled WRITE of `length` bytes.
  void write_to(const End& peer, std::uint64_t id, std::uint32_t length = 8) const {
    ibv_wr_start(builder);
    builder->wr_id = id;
    builder->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(builder, peer.mr->rkey, peer.address(4096));
    ibv_wr_set_sge(builder, mr->lkey, address(0), length);
    EXPECT_EQ(ibv_wr_complete(builder), 0);
  }

  /// Moves to the next completion, which the readers then tell about; call ibv_end_poll after them.
  [[nodiscard]] bool next() const {
    ibv_poll_cq_attr attr{};
    for (int i = 0; i < 1000; ++i) {
      const int error = ibv_start_poll(cq_ex, &attr);
      if (error == 0) return true;
      EXPECT_EQ(error, ENOENT);
      devices.host.step();
    }
    return false;
  }

  ibv_cq_ex* cq_ex = nullptr;
  ibv_qp_ex* builder = nullptr;
};

TEST(Extended, ABatchIsBuiltPostedAndReadFieldByField) {
  Devices devices;
  ExtendedEnd a(devices, 0);
  ExtendedEnd b(devices, 1);
  testing::connect(a, b);
  ASSERT_EQ(b.receive(9, b.piece(0, 256)), 0);
  std::memset(a.memory.data(), 0x33, 256);

  ibv_wr_start(a.builder);
  a.builder->wr_id = 1;
  a.builder->wr_flags = 0;
  ibv_wr_rdma_write(a.builder, b.mr->rkey, b.address(4096));
  ibv_wr_set_sge(a.builder, a.mr->lkey, a.address(0), 256);
  a.builder->wr_id = 2;
  a.builder->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_imm(a.builder, htobe32(77));
  std::array<char, 6> first{"abcde"};
  std::array<char, 4> second{"xyz"};
  const std::array<ibv_data_buf, 2> list{{{first.data(), 5}, {second.data(), 4}}};
  ibv_wr_set_inline_data_list(a.builder, list.size(), list.data());
  first.fill('?');
  ASSERT_EQ(ibv_wr_complete(a.builder), 0);

  ASSERT_TRUE(b.next());
  EXPECT_EQ(b.cq_ex->wr_id, 9U);
  EXPECT_EQ(b.cq_ex->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(b.cq_ex), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(b.cq_ex), 9U);
  EXPECT_EQ(ibv_wc_read_imm_data(b.cq_ex), htobe32(77));
  EXPECT_EQ(ibv_wc_read_wc_flags(b.cq_ex), static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ibv_wc_read_qp_num(b.cq_ex), b.qp->qp_num);
  EXPECT_EQ(ibv_next_poll(b.cq_ex), ENOENT);
  ibv_end_poll(b.cq_ex);
  EXPECT_STREQ(reinterpret_cast<const char*>(b.memory.data()), "abcdexyz");
  EXPECT_EQ(std::memcmp(b.memory.data() + 4096, a.memory.data(), 256), 0);

  ASSERT_TRUE(a.next());
  EXPECT_EQ(a.cq_ex->wr_id, 2U);  // the first one was not signalled
  ibv_end_poll(a.cq_ex);
}

TEST(Extended, CompletionsKeepWhenTheyWereMade) {
  Devices devices;
  ExtendedEnd a(
      devices, 0,
      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
  ExtendedEnd b(devices, 1);
  testing::connect(a, b);
  a.write_to(b, 1);
  devices.host.settle();
  const Time made = devices.host.clock;
  devices.host.clock += std::chrono::seconds(5);
  ASSERT_TRUE(a.next());
  const auto stamp = Duration(static_cast<Duration::rep>(ibv_wc_read_completion_ts(a.cq_ex)));
  EXPECT_LE(stamp, made.time_since_epoch());
  EXPECT_GT(stamp, made.time_since_epoch() - std::chrono::seconds(1));
  const auto wall = std::chrono::nanoseconds(
      static_cast<std::int64_t>(ibv_wc_read_completion_wallclock_ns(a.cq_ex)));
  const auto ago = std::chrono::system_clock::now().time_since_epoch() - wall;
  EXPECT_GE(ago, std::chrono::seconds(5));
  EXPECT_LT(ago, std::chrono::seconds(60));
  ibv_end_poll(a.cq_ex);
}

TEST(Extended, AQueueThatIgnoresOverrunsKeepsTheNewest) {
  Devices devices;
  ExtendedEnd a(devices, 0, IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 2);
  ExtendedEnd b(devices, 1);
  testing::connect(a, b);
  for (std::uint64_t id = 1; id <= 5; ++id) {
    a.write_to(b, id);
    devices.host.settle();
  }
  ASSERT_TRUE(a.next());
  EXPECT_EQ(a.cq_ex->wr_id, 4U);
  ASSERT_EQ(ibv_next_poll(a.cq_ex), 0);
  EXPECT_EQ(a.cq_ex->wr_id, 5U);
  EXPECT_EQ(ibv_next_poll(a.cq_ex), ENOENT);
  ibv_end_poll(a.cq_ex);
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(a.cq_ex, &attr), ENOENT);  // nothing failed
}

/// Between its start and its end a poll is one thread's: the other one finds the next completion.
TEST(Extended, APollIsOneThreads) {
  Devices devices;
  ExtendedEnd a(devices, 0);
  ExtendedEnd b(devices, 1);
  testing::connect(a, b);
  for (std::uint64_t id = 1; id <= 2; ++id) a.write_to(b, id);
  ASSERT_TRUE(a.next());
  std::uint64_t others = 0;
  std::thread other([&] {
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(a.cq_ex, &attr) != 0) return;
    others = a.cq_ex->wr_id;
    ibv_end_poll(a.cq_ex);
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(a.cq_ex->wr_id, 1U);
    std::this_thread::yield();
  }
  ibv_end_poll(a.cq_ex);
  other.join();
  EXPECT_EQ(others, 2U);
}

/// Between its start and its end a session is one thread's.
TEST(Extended, ThreadsTakeTurnsWithSessions) {
  constexpr int kThreads = 4;
  constexpr int kSessions = 4;  // of each: as many as the queue has room for
  Devices devices;
  ExtendedEnd a(devices, 0);
  ExtendedEnd b(devices, 1);
  testing::connect(a, b);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::jthread> all;
    for (int thread = 0; thread < kThreads; ++thread) {
      all.emplace_back([&] {
        for (int i = 0; i < kSessions; ++i) a.write_to(b, 1);
      });
    }
    all.clear();
    for (int left = kThreads * kSessions; left != 0; --left) {
      ASSERT_TRUE(a.next()) << left << " of round " << round << " are missing";
      EXPECT_EQ(a.cq_ex->status, IBV_WC_SUCCESS);
      ibv_end_poll(a.cq_ex);
    }
  }
}

TEST(Extended, AMistakeEndsTheBatchAndAnAbortForgetsIt) {
  Devices devices;
  ExtendedEnd a(devices, 0);
  ExtendedEnd b(devices, 1);
  testing::connect(a, b);
  ibv_wr_start(a.builder);
  ibv_wr_set_sge(a.builder, 0, 0, 0);  // before any request
  EXPECT_EQ(ibv_wr_complete(a.builder), EINVAL);
  ibv_wr_start(a.builder);
  ibv_wr_send(a.builder);
  std::array<char, 100> large{};
  ibv_wr_set_inline_data(a.builder, large.data(), large.size());  // 64 were granted
  EXPECT_EQ(ibv_wr_complete(a.builder), EINVAL);
  ibv_wr_start(a.builder);
  ibv_wr_send(a.builder);
  ibv_wr_abort(a.builder);
  ibv_wr_start(a.builder);
  EXPECT_EQ(ibv_wr_complete(a.builder), 0);
  devices.host.settle();
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(a.cq_ex, &attr), ENOENT);
}

TEST(Extended, WhatTheDeviceDoesNotHave) {
  Devices devices;
  const End end(devices, 0);
  ibv_cq_init_attr_ex cq{};
  cq.cqe = 4;
  cq.wc_flags = IBV_WC_EX_WITH_CVLAN;
  EXPECT_EQ(ibv_create_cq_ex(end.context, &cq), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_qp_init_attr_ex qp{};
  qp.send_cq = qp.recv_cq = end.cq;
  qp.qp_type = IBV_QPT_UD;
  qp.pd = end.pd;
  qp.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  qp.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  EXPECT_EQ(ibv_create_qp_ex(end.context, &qp), nullptr);
  EXPECT_EQ(errno, EINVAL);
  qp.qp_type = IBV_QPT_RC;
  qp.send_ops_flags = IBV_QP_EX_WITH_TSO;
  EXPECT_EQ(ibv_create_qp_ex(end.context, &qp), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace verbena::compat
