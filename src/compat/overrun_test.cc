// SPDX-License-Identifier: Apache-2.0
//
// Completion queues that overflow, and receives that are not there.
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

ibv_send_wr message() {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

std::optional<ibv_async_event> next_event(const End& end) {
  ibv_async_event event{};
  if (ibv_get_async_event(end.context, &event) != 0) return std::nullopt;
  ibv_ack_async_event(&event);
  return event;
}

ibv_qp_attr query(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr;
}

/// Both queue pairs of `b` complete into its one queue.
class Overrun : public ::testing::Test {
 protected:
  Overrun() {
    testing::connect(a, b);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = b.cq;
    init.qp_type = IBV_QPT_RC;
    idle = ibv_create_qp(b.pd, &init);
    ibv_qp* const own = std::exchange(b.qp, idle);
    EXPECT_EQ(testing::to_init(b), 0);
    b.qp = own;
  }
  ~Overrun() override { EXPECT_EQ(ibv_destroy_qp(idle), 0); }

  Devices devices;
  End a{devices, 0};
  End b{devices, 1};
  ibv_qp* idle = nullptr;
};

/// IBV_EVENT_CQ_ERR, and the queue's queue pairs in the error state (engine.md, "Queue pairs and
/// queues"). What was there before can still be read.
TEST_F(Overrun, EndsTheQueueAndItsQueuePairs) {
  ASSERT_EQ(ibv_resize_cq(b.cq, 2), 0);
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(b.receive(id, b.piece(0, 64)), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(a.send(message(), a.piece(0, 8)), 0);
  devices.host.settle();
  const auto event = next_event(b);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event->element.cq, b.cq);
  EXPECT_EQ(query(b.qp).qp_state, IBV_QPS_ERR);
  EXPECT_EQ(query(idle).qp_state, IBV_QPS_ERR);
  ibv_wc wc{};
  for (std::uint64_t id = 1; id <= 2; ++id) {
    ASSERT_EQ(ibv_poll_cq(b.cq, 1, &wc), 1);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(ibv_poll_cq(b.cq, 1, &wc), -EIO);

  // With another queue the device goes on.
  End again(devices, 1);
  End sender(devices, 0);
  testing::connect(sender, again);
  ASSERT_EQ(again.receive(9, again.piece(0, 64)), 0);
  ASSERT_EQ(sender.send(message(), sender.piece(0, 8)), 0);
  EXPECT_EQ(again.await().wr_id, 9U);
}

/// A queue pair whose sends overflow fails alike.
TEST_F(Overrun, OfTheSendersQueue) {
  ASSERT_EQ(ibv_resize_cq(a.cq, 1), 0);
  for (std::uint64_t id = 1; id <= 2; ++id) ASSERT_EQ(b.receive(id, b.piece(0, 64)), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(a.send(message(), a.piece(0, 8)), 0);
  devices.host.settle();
  const auto event = next_event(a);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(query(a.qp).qp_state, IBV_QPS_ERR);
  EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
}

class Underrun : public ::testing::Test {
 protected:
  /// Gives an end a queue pair that takes from a shared queue.
  void share(End& end, ibv_qp_type type) {
    ibv_srq_init_attr attr{.srq_context = nullptr,
                           .attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0}};
    srq = ibv_create_srq(end.pd, &attr);
    EXPECT_EQ(ibv_destroy_qp(end.qp), 0);
    end.qp = make(end, type);
    other = make(end, type);
  }
  ibv_qp* make(const End& end, ibv_qp_type type) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.srq = srq;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 0,
                .max_send_sge = 1,
                .max_recv_sge = 0,
                .max_inline_data = 0};
    init.qp_type = type;
    return ibv_create_qp(end.pd, &init);
  }
  void stop_sharing(End& end) {
    EXPECT_EQ(ibv_destroy_qp(other), 0);
    EXPECT_EQ(ibv_destroy_qp(end.qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    srq = nullptr;
    end.qp = make(end, IBV_QPT_RC);
  }
  int post(const End& end, std::uint64_t id) const {
    ibv_sge piece = end.piece(0, 128);
    ibv_recv_wr wr{.wr_id = id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }

  Devices devices;
  ibv_srq* srq = nullptr;
  ibv_qp* other = nullptr;
};

/// A message that finds no receive is asked for again, rnr_retry times; only its sender fails.
TEST_F(Underrun, EndsTheSenderWhenItsRetriesAreUsedUp) {
  End a(devices, 0);
  End second(devices, 0);
  End b(devices, 1);
  share(b, IBV_QPT_RC);
  testing::connect_one(b, a);
  ASSERT_EQ(testing::to_init(a), 0);
  ibv_qp_attr attr = testing::rtr_attributes(b);
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, testing::kRtrMask), 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = 100;
  attr.timeout = 10;
  attr.rnr_retry = 2;
  attr.max_rd_atomic = 1;
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            0);
  std::swap(b.qp, other);
  testing::connect(second, b);
  std::swap(b.qp, other);
  ASSERT_EQ(a.send(message(), a.piece(0, 8)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(query(a.qp).qp_state, IBV_QPS_ERR);
  EXPECT_EQ(query(b.qp).qp_state, IBV_QPS_RTS);
  EXPECT_FALSE(next_event(b));

  ASSERT_EQ(post(b, 5), 0);
  ASSERT_EQ(second.send(message(), second.piece(0, 8)), 0);
  EXPECT_EQ(b.await().wr_id, 5U);
  EXPECT_EQ(second.await().status, IBV_WC_SUCCESS);
  stop_sharing(b);
}

/// A datagram that finds none is gone, and nobody is told.
TEST_F(Underrun, LosesDatagrams) {
  End a(devices, 0, IBV_QPT_UD);
  End b(devices, 1, IBV_QPT_UD);
  share(b, IBV_QPT_UD);
  testing::bring_up(a);
  testing::bring_up(b);
  ibv_ah_attr attr = testing::address_of(b);
  ibv_ah* const ah = ibv_create_ah(a.pd, &attr);
  ibv_send_wr wr = message();
  wr.wr.ud = {.ah = ah, .remote_qpn = b.qp->qp_num, .remote_qkey = testing::kQkey};
  ASSERT_EQ(a.send(wr, a.piece(0, 8)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  devices.host.settle();
  ASSERT_EQ(post(b, 6), 0);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(b.cq, 1, &wc), 0);
  ASSERT_EQ(a.send(wr, a.piece(0, 8)), 0);
  EXPECT_EQ(b.await().wr_id, 6U);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  stop_sharing(b);
}

/// An unreliable connection loses the message and goes on with the next.
TEST_F(Underrun, LosesMessagesOfUnreliableConnections) {
  const End a(devices, 0, IBV_QPT_UC);
  const End b(devices, 1, IBV_QPT_UC);
  for (const auto& [end, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    ASSERT_EQ(testing::to_init(*end), 0);
    ibv_qp_attr attr = testing::rtr_attributes(*to);
    ASSERT_EQ(
        ibv_modify_qp(end->qp, &attr,
                      testing::kRtrMask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)),
        0);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 100;
    ASSERT_EQ(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }
  ASSERT_EQ(a.send(message(), a.piece(0, 8)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  devices.host.settle();
  ASSERT_EQ(b.receive(7, b.piece(0, 64)), 0);
  ASSERT_EQ(a.send(message(), a.piece(8, 16)), 0);
  const ibv_wc wc = b.await();
  EXPECT_EQ(wc.wr_id, 7U);
  EXPECT_EQ(wc.byte_len, 16U);
}

}  // namespace
}  // namespace verbena::compat
