// SPDX-License-Identifier: Apache-2.0
//
// Shared receive queues: two queue pairs of one device take from one, two of another send.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <vector>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::connect;
using testing::connect_one;
using testing::Devices;
using testing::End;
using testing::to_init;

constexpr nic::Limits kLimits{.max_srq = 2, .max_srq_wr = 32, .max_sge = 4};

class SharedReceives : public ::testing::Test {
 protected:
  SharedReceives() {
    srq = make(16);
    // The fixture's own queue pair makes room for two that share.
    EXPECT_EQ(ibv_destroy_qp(end.qp), 0);
    second_qp = share();
    end.qp = share();
  }
  ~SharedReceives() override {
    if (second_qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(second_qp), 0);
    }
    EXPECT_EQ(ibv_destroy_qp(end.qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.qp_type = IBV_QPT_RC;
    end.qp = ibv_create_qp(end.pd, &init);
  }

  ibv_srq* make(std::uint32_t max_wr, std::uint32_t max_sge = 2) const {
    ibv_srq_init_attr attr{.srq_context = nullptr,
                           .attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 0}};
    return ibv_create_srq(end.pd, &attr);
  }
  ibv_qp* share(ibv_qp_type type = IBV_QPT_RC) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.srq = srq;
    init.qp_type = type;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 7,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    ibv_qp* const qp = ibv_create_qp(end.pd, &init);
    EXPECT_EQ(init.cap.max_recv_wr, 0U);
    return qp;
  }
  /// Both senders with the two that share.
  void connect_both() {
    connect(end, first);
    std::swap(end.qp, second_qp);
    connect(end, second);
    std::swap(end.qp, second_qp);
  }
  int post(std::uint64_t id, ibv_sge piece) const {
    ibv_recv_wr wr{.wr_id = id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  void send(const End& from, std::uint32_t length = 8) const {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(from.send(wr, from.piece(0, length)), 0);
  }
  int set_limit(std::uint32_t limit) const {
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = limit};
    return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
  }
  int resize(std::uint32_t max_wr) const {
    ibv_srq_attr attr{.max_wr = max_wr, .max_sge = 0, .srq_limit = 0};
    return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
  }
  ibv_srq_attr query() const {
    ibv_srq_attr attr{};
    EXPECT_EQ(ibv_query_srq(srq, &attr), 0);
    return attr;
  }
  /// The next asynchronous event, acknowledged; nothing when there is none.
  std::optional<ibv_async_event> next_event() const {
    ibv_async_event event{};
    if (ibv_get_async_event(end.context, &event) != 0) return std::nullopt;
    ibv_ack_async_event(&event);
    return event;
  }

  Devices devices{kLimits};
  End end{devices, 0};
  End first{devices, 1};
  End second{devices, 1};
  ibv_srq* srq = nullptr;
  ibv_qp* second_qp = nullptr;
};

TEST_F(SharedReceives, AreTakenInOrderByWhoeverGetsAMessage) {
  connect_both();
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post(id, end.piece(100 * id, 100)), 0);
  for (std::uint64_t id = 0; id < 4; ++id) {
    End& from = id % 2 == 0 ? first : second;
    std::ranges::fill(std::span(from.memory).first(8), static_cast<std::byte>(id + 1));
    send(from);
    const ibv_wc wc = end.await();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.qp_num, id % 2 == 0 ? end.qp->qp_num : second_qp->qp_num);
    EXPECT_EQ(end.memory[100 * id], static_cast<std::byte>(id + 1));
    EXPECT_EQ(from.await().status, IBV_WC_SUCCESS);
  }
}

TEST_F(SharedReceives, WhoFindsNoneIsAskedAgainUntilOneIsThere) {
  connect_both();
  send(first);
  for (int i = 0; i < 20; ++i) devices.host.step();
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(end.cq, 1, &wc), 0);
  ASSERT_EQ(post(7, end.piece(0, 100)), 0);
  EXPECT_EQ(end.await().wr_id, 7U);
  EXPECT_EQ(first.await().status, IBV_WC_SUCCESS);
}

TEST_F(SharedReceives, TheirKeysAreOfTheQueuesOwnProtectionDomain) {
  ibv_pd* const other = ibv_alloc_pd(end.context);
  EXPECT_EQ(ibv_destroy_qp(second_qp), 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end.cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  second_qp = ibv_create_qp(other, &init);
  std::swap(end.qp, second_qp);
  connect(end, first);
  ASSERT_EQ(post(1, end.piece(0, 100)), 0);
  send(first);
  EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
  std::swap(end.qp, second_qp);
  EXPECT_EQ(ibv_destroy_qp(second_qp), 0);
  second_qp = nullptr;
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(SharedReceives, TheLimitRaisesOneEvent) {
  connect_both();
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post(id, end.piece(0, 100)), 0);
  ASSERT_EQ(set_limit(3), 0);
  EXPECT_EQ(query().srq_limit, 3U);
  send(first);
  EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(next_event());  // three are left
  send(second);
  EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
  auto limit = next_event();
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(limit->element.srq, srq);
  EXPECT_EQ(query().srq_limit, 0U);
  send(first);
  EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(next_event());
  ASSERT_EQ(set_limit(1), 0);
  send(first);
  EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
  limit = next_event();
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
}

TEST_F(SharedReceives, StayWhenAQueuePairEnds) {
  connect_both();
  for (std::uint64_t id = 0; id < 2; ++id) ASSERT_EQ(post(id, end.piece(0, 100)), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(second_qp, &attr, IBV_QP_STATE), 0);
  const auto last = next_event();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(last->element.qp, second_qp);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(end.cq, 1, &wc), 0);
  send(first);
  EXPECT_EQ(end.await().wr_id, 0U);
  EXPECT_FALSE(next_event());
}

TEST_F(SharedReceives, AMessageThatIsTooLongTakesOne) {
  connect_both();
  for (std::uint64_t id = 0; id < 2; ++id) ASSERT_EQ(post(id, end.piece(0, 100)), 0);
  send(first, 200);
  EXPECT_EQ(end.await().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(first.await().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(next_event().value().event_type, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(next_event().value().event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  send(second);
  EXPECT_EQ(end.await().wr_id, 1U);
}

TEST_F(SharedReceives, WhatIsPostedStaysWhenTheSizeChanges) {
  connect_both();
  for (std::uint64_t id = 0; id < 10; ++id) ASSERT_EQ(post(id, end.piece(0, 100)), 0);
  EXPECT_EQ(resize(9), EINVAL);
  EXPECT_EQ(resize(33), EINVAL);
  EXPECT_EQ(resize(0), EINVAL);
  ASSERT_EQ(resize(10), 0);
  EXPECT_EQ(query().max_wr, 10U);
  EXPECT_EQ(post(10, end.piece(0, 100)), ENOMEM);
  ASSERT_EQ(resize(32), 0);
  for (std::uint64_t id = 10; id < 32; ++id) ASSERT_EQ(post(id, end.piece(0, 100)), 0);
  for (std::uint64_t id = 0; id < 32; ++id) {
    send(first);
    EXPECT_EQ(end.await().wr_id, id);
    EXPECT_EQ(first.await().status, IBV_WC_SUCCESS);
  }
}

TEST_F(SharedReceives, WrongValuesAreRefused) {
  errno = 0;
  EXPECT_EQ(make(33), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(make(0), nullptr);
  EXPECT_EQ(make(1, 5), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_srq* const another = make(1);
  ASSERT_NE(another, nullptr);
  EXPECT_EQ(make(1), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_destroy_srq(another), 0);

  EXPECT_EQ(set_limit(17), EINVAL);
  ibv_srq_attr both{.max_wr = 8, .max_sge = 0, .srq_limit = 9};
  EXPECT_EQ(ibv_modify_srq(srq, &both, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(query().max_wr, 16U);
  EXPECT_EQ(ibv_modify_srq(srq, &both, 1 << 5), EINVAL);

  EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(end.pd), EBUSY);
  ASSERT_EQ(to_init(end), 0);
  EXPECT_EQ(end.receive(1, end.piece(0, 8)), EINVAL);  // it has no queue of its own
  ibv_recv_wr wr{.wr_id = 1, .next = nullptr, .sg_list = nullptr, .num_sge = 3};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
}

TEST_F(SharedReceives, AnotherContextsQueueIsRefused) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = first.cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  errno = 0;
  EXPECT_EQ(ibv_create_qp(first.pd, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SharedReceives, TheExtendedCallMakesBasicOnes) {
  ibv_srq_init_attr_ex attr{};
  attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  attr.srq_type = IBV_SRQT_BASIC;
  attr.pd = end.pd;
  ibv_srq* const made = ibv_create_srq_ex(end.context, &attr);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(ibv_destroy_srq(made), 0);
  attr.srq_type = testing::wrong_value<ibv_srq_type>(3);
  errno = 0;
  EXPECT_EQ(ibv_create_srq_ex(end.context, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace verbena::compat
