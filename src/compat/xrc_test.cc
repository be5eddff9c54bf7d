// SPDX-License-Identifier: Apache-2.0
//
// XRC through the C ABI: domains by file, a target with two receive queues, and who holds it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::connect_one;
using testing::Devices;
using testing::End;

/// A file of its own, which is gone with it.
class TemporaryFile {
 public:
  TemporaryFile() : fd(::mkstemp(name_.data())) {}
  ~TemporaryFile() {
    ::close(fd);
    ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

 private:
  std::string name_ = "/tmp/verbena-xrc-XXXXXX";

 public:
  int fd;
};

ibv_xrcd* open_domain(ibv_context* context, int fd, int oflags,
                      std::uint32_t mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS) {
  ibv_xrcd_init_attr attr{.comp_mask = mask, .fd = fd, .oflags = oflags};
  errno = 0;
  return ibv_open_xrcd(context, &attr);
}

ibv_qp* make_target(ibv_context* context, ibv_xrcd* domain) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = domain;
  return ibv_create_qp_ex(context, &init);
}

ibv_srq* make_queue(const End& end, ibv_xrcd* domain, ibv_cq* cq) {
  ibv_srq_init_attr_ex attr{};
  attr.attr = {.max_wr = 8, .max_sge = 2, .srq_limit = 0};
  attr.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  attr.srq_type = IBV_SRQT_XRC;
  attr.pd = end.pd;
  attr.xrcd = domain;
  attr.cq = cq;
  errno = 0;
  return ibv_create_srq_ex(end.context, &attr);
}

std::uint32_t number_of(ibv_srq* srq) {
  std::uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
  return number;
}

TEST(XrcDomain, IsOpenedByItsFile) {
  Devices devices;
  const End end(devices, 0);
  const TemporaryFile file;
  const TemporaryFile other;
  EXPECT_EQ(open_domain(end.context, file.fd, 0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  ibv_xrcd* const first = open_domain(end.context, file.fd, O_CREAT);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->context, end.context);
  EXPECT_EQ(open_domain(end.context, file.fd, O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_xrcd* const again = open_domain(end.context, file.fd, 0);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(open_domain(end.context, other.fd, 0), nullptr);
  ibv_xrcd* const alone = open_domain(end.context, -1, O_CREAT);
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  EXPECT_EQ(open_domain(end.context, file.fd, O_CREAT | O_EXCL), nullptr);  // one is still open
  EXPECT_EQ(ibv_close_xrcd(again), 0);
  ibv_xrcd* const fresh = open_domain(end.context, file.fd, O_CREAT | O_EXCL);
  ASSERT_NE(fresh, nullptr);
  EXPECT_EQ(ibv_close_xrcd(fresh), 0);
  EXPECT_EQ(ibv_close_xrcd(alone), 0);
}

TEST(XrcDomain, WrongValuesAreRefused) {
  Devices devices;
  const End end(devices, 0);
  EXPECT_EQ(open_domain(end.context, 1 << 20, O_CREAT), nullptr);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(open_domain(end.context, -1, O_CREAT, IBV_XRCD_INIT_ATTR_FD), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(open_domain(end.context, -1, O_CREAT, IBV_XRCD_INIT_ATTR_RESERVED), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

/// `server` has a domain with two receive queues, of which one has a completion queue of its own,
/// and a target; `client` sends.
class Xrc : public ::testing::Test {
 protected:
  Xrc() {
    domain = open_domain(server.context, -1, O_CREAT);
    other_cq = ibv_create_cq(server.context, 16, nullptr, nullptr, 0);
    srq = make_queue(server, domain, server.cq);
    other_srq = make_queue(server, domain, other_cq);
    EXPECT_EQ(ibv_destroy_qp(server.qp), 0);
    server.qp = make_target(server.context, domain);
    EXPECT_EQ(ibv_destroy_qp(client.qp), 0);
    client.qp = make_sender();
  }
  ~Xrc() override {
    EXPECT_EQ(ibv_destroy_qp(server.qp), 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = server.cq;
    init.qp_type = IBV_QPT_RC;
    server.qp = ibv_create_qp(server.pd, &init);
    if (srq != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
    EXPECT_EQ(ibv_destroy_srq(other_srq), 0);
    EXPECT_EQ(ibv_destroy_cq(other_cq), 0);
    EXPECT_EQ(ibv_close_xrcd(domain), 0);
  }

  [[nodiscard]] ibv_qp* make_sender() const {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_XRC_SEND;
    init.send_cq = client.cq;
    init.cap = {.max_send_wr = 16,
                .max_recv_wr = 5,
                .max_send_sge = 4,
                .max_recv_sge = 5,
                .max_inline_data = 64};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND;
    init.pd = client.pd;
    ibv_qp* const made = ibv_create_qp_ex(client.context, &init);
    EXPECT_EQ(init.cap.max_recv_wr, 0u);
    return made;
  }
  void connect() {
    connect_one(server, client);
    connect_one(client, server);
  }
  [[nodiscard]] int post(ibv_srq* to, std::uint64_t id, ibv_sge piece) const {
    ibv_recv_wr wr{.wr_id = id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(to, &wr, &bad);
  }
  [[nodiscard]] int send(std::uint32_t number, ibv_wr_opcode opcode = IBV_WR_SEND) const {
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {.remote_addr = server.address(5000), .rkey = server.mr->rkey};
    wr.qp_type.xrc.remote_srqn = number;
    return client.send(wr, client.piece(0, 8));
  }
  [[nodiscard]] std::optional<ibv_async_event> next_event() const {
    ibv_async_event event{};
    if (ibv_get_async_event(server.context, &event) != 0) return std::nullopt;
    ibv_ack_async_event(&event);
    return event;
  }

  Devices devices;
  End server{devices, 0};
  End client{devices, 1};
  ibv_xrcd* domain = nullptr;
  ibv_cq* other_cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_srq* other_srq = nullptr;
};

TEST_F(Xrc, AQueueFailsWithItsCompletionQueue) {
  connect();
  const std::uint32_t number = number_of(other_srq);
  const auto send_one = [&] {
    EXPECT_EQ(post(other_srq, 1, server.piece(0, 8)), 0);
    EXPECT_EQ(send(number), 0);
    return client.await().status;
  };
  for (int i = 0; i < other_cq->cqe; ++i) ASSERT_EQ(send_one(), IBV_WC_SUCCESS);
  ASSERT_FALSE(next_event());
  EXPECT_EQ(send_one(), IBV_WC_RETRY_EXC_ERR);  // nobody can be told, so its target has ended
  const auto overrun = next_event();
  ASSERT_TRUE(overrun);
  EXPECT_EQ(overrun->event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(overrun->element.cq, other_cq);
  const auto failed = next_event();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->event_type, IBV_EVENT_SRQ_ERR);
  EXPECT_EQ(failed->element.srq, other_srq);
  EXPECT_EQ(next_event().value().event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_FALSE(next_event());

  // Another target finds it as it is.
  EXPECT_EQ(ibv_destroy_qp(server.qp), 0);
  EXPECT_EQ(ibv_destroy_qp(client.qp), 0);
  server.qp = make_target(server.context, domain);
  client.qp = make_sender();
  connect();
  EXPECT_EQ(send_one(), IBV_WC_REM_OP_ERR);
}

TEST_F(Xrc, EachQueueCompletesIntoItsOwnCompletionQueue) {
  connect();
  ASSERT_EQ(post(srq, 1, server.piece(0, 100)), 0);
  ASSERT_EQ(post(other_srq, 2, server.piece(200, 100)), 0);
  client.memory[0] = std::byte{7};
  ASSERT_EQ(send(number_of(other_srq)), 0);
  EXPECT_EQ(client.await().status, IBV_WC_SUCCESS);
  ibv_wc wc{};
  ASSERT_EQ(ibv_poll_cq(other_cq, 1, &wc), 1);
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.qp_num, server.qp->qp_num);
  EXPECT_EQ(server.memory[200], std::byte{7});
  EXPECT_EQ(ibv_poll_cq(server.cq, 1, &wc), 0);

  ibv_qp_ex* const builder = ibv_qp_to_qp_ex(client.qp);
  ASSERT_NE(builder, nullptr);
  ibv_wr_start(builder);
  builder->wr_id = 9;
  builder->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(builder);
  ibv_wr_set_xrc_srqn(builder, number_of(srq));
  ibv_wr_set_sge(builder, client.mr->lkey, client.address(0), 8);
  ASSERT_EQ(ibv_wr_complete(builder), 0);
  EXPECT_EQ(server.await().wr_id, 1u);
  EXPECT_EQ(client.await().wr_id, 9u);
}

TEST_F(Xrc, AQueueOfAnotherDomainIsAnInvalidRequest) {
  connect();
  ibv_xrcd* const strange = open_domain(server.context, -1, O_CREAT);
  ibv_srq* const there = make_queue(server, strange, server.cq);
  ASSERT_NE(there, nullptr);
  ASSERT_EQ(send(number_of(there), IBV_WR_RDMA_WRITE), 0);
  EXPECT_EQ(client.await().status, IBV_WC_REM_INV_REQ_ERR);
  const auto refused = next_event();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->event_type, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(refused->element.qp, server.qp);
  EXPECT_EQ(next_event().value().event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(ibv_destroy_srq(there), 0);
  EXPECT_EQ(ibv_close_xrcd(strange), 0);
}

TEST_F(Xrc, AQueueThatIsDestroyedIsFoundNoMore) {
  connect();
  const std::uint32_t number = number_of(srq);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  srq = nullptr;
  ASSERT_EQ(send(number), 0);
  EXPECT_EQ(client.await().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Xrc, WhatIsInUseStays) {
  EXPECT_EQ(ibv_close_xrcd(domain), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(other_cq), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(server.pd), EBUSY);
}

TEST_F(Xrc, OnlyTheSenderIsPostedTo) {
  connect();
  const ibv_sge piece = server.piece(0, 8);
  EXPECT_EQ(server.receive(1, piece), EINVAL);
  EXPECT_EQ(client.receive(1, client.piece(0, 8)), EINVAL);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  EXPECT_EQ(server.send(wr, piece), EINVAL);
  EXPECT_EQ(send(1 << 24), EINVAL);
  EXPECT_EQ(send(number_of(srq), IBV_WR_TSO), EINVAL);
}

TEST_F(Xrc, ATargetBindsNoWindow) {
  ibv_mw* const mw = ibv_alloc_mw(server.pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  ibv_mw_bind bind{};
  EXPECT_EQ(ibv_bind_mw(server.qp, mw, &bind), EINVAL);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Xrc, ATargetMayBeHeldTwice) {
  const TemporaryFile file;
  ibv_xrcd* const maker = open_domain(server.context, file.fd, O_CREAT);
  ibv_xrcd* const user = open_domain(server.context, file.fd, 0);
  ibv_qp* const made = make_target(server.context, maker);
  ASSERT_NE(made, nullptr);
  ibv_qp_open_attr attr{.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                                     IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT,
                        .qp_num = made->qp_num,
                        .xrcd = user,
                        .qp_context = &attr,
                        .qp_type = IBV_QPT_XRC_RECV};
  ibv_qp* const opened = ibv_open_qp(server.context, &attr);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(opened->qp_num, made->qp_num);
  EXPECT_EQ(opened->qp_context, &attr);
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(made, &error, IBV_QP_STATE), 0);
  EXPECT_EQ(next_event().value().element.qp, made);
  EXPECT_EQ(next_event().value().element.qp, opened);
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(opened, &error, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(error.qp_state, IBV_QPS_ERR);

  EXPECT_EQ(ibv_close_xrcd(maker), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(made), 0);
  EXPECT_EQ(ibv_close_xrcd(maker), 0);
  EXPECT_EQ(ibv_query_qp(opened, &error, IBV_QP_STATE, &init), 0);  // it goes on for the other
  EXPECT_EQ(ibv_destroy_qp(opened), 0);
  errno = 0;
  EXPECT_EQ(ibv_open_qp(server.context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr.qp_num = server.qp->qp_num;  // of another domain
  EXPECT_EQ(ibv_open_qp(server.context, &attr), nullptr);
  EXPECT_EQ(ibv_close_xrcd(user), 0);
}

TEST_F(Xrc, WhatIsLeftBehindGoesWithTheDevice) {
  ibv_context* const context = ibv_open_device(devices.list[0]);
  ibv_xrcd* const left = open_domain(context, -1, O_CREAT);
  ibv_qp* const target = make_target(context, left);
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
  delete &Qp::of(target);  // as End::leave_behind()
  delete &Xrcd::of(left);
}

TEST_F(Xrc, WrongValuesAreRefused) {
  EXPECT_EQ(make_target(server.context, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(make_queue(server, domain, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(make_queue(server, domain, client.cq), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(make_queue(client, domain, client.cq), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_srq_init_attr basic{.srq_context = nullptr,
                          .attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0}};
  ibv_srq* const plain = ibv_create_srq(server.pd, &basic);
  std::uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(plain, &number), EINVAL);
  EXPECT_EQ(ibv_destroy_srq(plain), 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = server.cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  EXPECT_EQ(ibv_create_qp(server.pd, &init), nullptr);  // it is for targets
  EXPECT_EQ(errno, EINVAL);
}

TEST(XrcCapability, IsTold) {
  Devices devices;
  const End end(devices, 0);
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(end.context, &attr), 0);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_XRC, 0u);
}

}  // namespace
}  // namespace verbena::compat
