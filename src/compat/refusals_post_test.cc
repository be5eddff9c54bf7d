// SPDX-License-Identifier: Apache-2.0
//
// What posting refuses, and what ends in an error completion: opcodes, flags, states, lists, and
// objects and keys that are another's.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <set>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

ibv_send_wr write_to(const End& to, std::uint64_t id = 1) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {.remote_addr = to.address(0), .rkey = to.mr->rkey};
  return wr;
}

int post(const End& end, ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(end.qp, &wr, &bad);
  EXPECT_EQ(bad, error != 0 ? &wr : nullptr);
  return error;
}

ibv_qp_state state_of(const End& end) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(end.qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

int go_to(const End& end, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return ibv_modify_qp(end.qp, &attr, IBV_QP_STATE);
}

class Posting : public ::testing::Test {
 protected:
  Posting() { testing::connect(a, b); }

  Devices devices;
  End a{devices, 0};
  End b{devices, 1};
};

/// The table of ibv_post_send(3), but for SEND with invalidate on UC, which has no opcode on the
/// wire, and for segmentation, which is not offered.
TEST(PostingOpcodes, ThatTheTypeDoesNotHaveAreRefused) {
  const std::set<int> datagram = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM};
  std::set<int> unreliable = datagram;
  unreliable.insert(
      {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW});
  std::set<int> reliable = unreliable;
  reliable.insert({IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
                   IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_WRITE});
  Devices devices;
  for (const auto& [type, known] :
       {std::pair{IBV_QPT_RC, reliable}, std::pair{IBV_QPT_UC, unreliable},
        std::pair{IBV_QPT_UD, datagram},
        std::pair{IBV_QPT_RAW_PACKET, std::set<int>{IBV_WR_SEND}}}) {
    const End end(devices, 0, type);
    for (int opcode = -1; opcode <= 40; ++opcode) {
      if (known.contains(opcode)) continue;
      ibv_send_wr wr{};
      wr.opcode = testing::wrong_value<ibv_wr_opcode>(opcode);
      EXPECT_EQ(end.send(wr, end.piece(0, 8)), EINVAL) << "type " << type << " opcode " << opcode;
    }
  }
}

TEST_F(Posting, IsForTheStatesThatTheManualNames) {
  ASSERT_EQ(go_to(a, IBV_QPS_RESET), 0);
  EXPECT_EQ(a.send(write_to(b), a.piece(0, 8)), EINVAL);
  EXPECT_EQ(a.receive(1, a.piece(0, 8)), EINVAL);
  ASSERT_EQ(testing::to_init(a), 0);
  EXPECT_EQ(a.send(write_to(b), a.piece(0, 8)), EINVAL);
  EXPECT_EQ(a.receive(1, a.piece(0, 8)), 0);
  ibv_qp_attr attr = testing::rtr_attributes(b);
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, testing::kRtrMask), 0);
  EXPECT_EQ(a.send(write_to(b), a.piece(0, 8)), EINVAL);
  EXPECT_EQ(a.receive(2, a.piece(0, 8)), 0);
  ASSERT_EQ(testing::to_rts(a), 0);
  ASSERT_EQ(go_to(a, IBV_QPS_SQD), 0);
  EXPECT_EQ(a.send(write_to(b, 3), a.piece(0, 8)), 0);  // it waits
  devices.host.settle();
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(a.cq, 1, &wc), 0);
  ASSERT_EQ(go_to(a, IBV_QPS_ERR), 0);
  EXPECT_EQ(a.send(write_to(b, 4), a.piece(0, 8)), 0);
  EXPECT_EQ(a.receive(5, a.piece(0, 8)), 0);
  std::set<std::uint64_t> flushed;
  for (int i = 0; i < 5; ++i) {
    wc = a.await();
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    flushed.insert(wc.wr_id);
  }
  EXPECT_EQ(flushed, (std::set<std::uint64_t>{1, 2, 3, 4, 5}));
}

TEST_F(Posting, ListsThatCannotBe) {
  ibv_sge piece = a.piece(0, 8);
  for (const auto& [list, count] : {std::pair{&piece, -1}, std::pair{&piece, 5},
                                    std::pair{static_cast<ibv_sge*>(nullptr), 1}}) {
    ibv_send_wr send = write_to(b);
    send.sg_list = list;
    send.num_sge = count;
    EXPECT_EQ(post(a, send), EINVAL) << count;
    ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = list, .num_sge = count};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(a.qp, &receive, &bad), EINVAL) << count;
    EXPECT_EQ(bad, &receive);
  }
  ibv_send_wr inline_read = write_to(b);
  inline_read.opcode = IBV_WR_RDMA_READ;
  inline_read.send_flags |= IBV_SEND_INLINE;
  EXPECT_EQ(a.send(inline_read, a.piece(0, 8)), EINVAL);
  ibv_send_wr none = write_to(b);
  EXPECT_EQ(post(a, none), 0);  // no bytes
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
}

/// A key of another protection domain, or of a region without the right, is found when it is used.
TEST_F(Posting, OwnKeysThatAreAnothersFailTheRequest) {
  ibv_pd* const other = ibv_alloc_pd(a.context);
  ibv_mr* const foreign = ibv_reg_mr(other, a.memory.data(), 64, testing::kAllAccess);
  ibv_sge piece = a.piece(0, 8);
  piece.lkey = foreign->lkey;
  ASSERT_EQ(a.send(write_to(b, 1), piece), 0);
  ASSERT_EQ(a.send(write_to(b, 2), a.piece(0, 8)), 0);
  ibv_wc wc = a.await();
  EXPECT_EQ(wc.wr_id, 1U);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  wc = a.await();
  EXPECT_EQ(wc.wr_id, 2U);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(state_of(a), IBV_QPS_ERR);
  EXPECT_EQ(ibv_dereg_mr(foreign), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Posting, AReadIntoWhatMayNotBeWrittenFails) {
  ibv_mr* const mr = ibv_reg_mr(a.pd, a.memory.data(), 64, 0);
  ibv_send_wr read = write_to(b);
  read.opcode = IBV_WR_RDMA_READ;
  ibv_sge piece = a.piece(0, 8);
  piece.lkey = mr->lkey;
  ASSERT_EQ(a.send(read, piece), 0);
  EXPECT_EQ(a.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Posting, AReceiveWithAnothersKeyFailsBothSides) {
  ibv_pd* const other = ibv_alloc_pd(b.context);
  ibv_mr* const foreign = ibv_reg_mr(other, b.memory.data(), 64, testing::kAllAccess);
  ibv_sge piece = b.piece(0, 64);
  piece.lkey = foreign->lkey;
  ASSERT_EQ(b.receive(7, piece), 0);
  ibv_send_wr send = write_to(b);
  send.opcode = IBV_WR_SEND;
  ASSERT_EQ(a.send(send, a.piece(0, 8)), 0);
  const ibv_wc received = b.await();
  EXPECT_EQ(received.wr_id, 7U);
  EXPECT_EQ(received.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(a.await().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(ibv_dereg_mr(foreign), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Posting, ARemoteKeyOfAnotherProtectionDomainIsAnAccessError) {
  ibv_pd* const other = ibv_alloc_pd(b.context);
  ibv_mr* const foreign = ibv_reg_mr(other, b.memory.data(), 64, testing::kAllAccess);
  ibv_send_wr wr = write_to(b);
  wr.wr.rdma.rkey = foreign->rkey;
  ASSERT_EQ(a.send(wr, a.piece(0, 8)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(foreign), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Posting, WindowsOfAnothersObjectsAreNotBound) {
  const End stranger(devices, 0);
  ibv_pd* const other = ibv_alloc_pd(a.context);
  ibv_mw* const own = ibv_alloc_mw(a.pd, IBV_MW_TYPE_2);
  ibv_mw* const foreign = ibv_alloc_mw(stranger.pd, IBV_MW_TYPE_2);
  ibv_mw* const aside = ibv_alloc_mw(other, IBV_MW_TYPE_2);
  const auto bind = [&](ibv_mw* mw, ibv_mr* mr) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {.mw = mw,
                  .rkey = mw != nullptr ? mw->rkey : 0,
                  .bind_info = {.mr = mr,
                                .addr = a.address(0),
                                .length = 8,
                                .mw_access_flags = IBV_ACCESS_REMOTE_READ}};
    return post(a, wr);
  };
  EXPECT_EQ(bind(nullptr, a.mr), EINVAL);
  EXPECT_EQ(bind(foreign, a.mr), EINVAL);
  EXPECT_EQ(bind(aside, a.mr), EINVAL);
  EXPECT_EQ(bind(own, stranger.mr), EINVAL);
  ibv_mw* const first = ibv_alloc_mw(stranger.pd, IBV_MW_TYPE_1);
  ibv_mw_bind to{.wr_id = 1,
                 .send_flags = 0,
                 .bind_info = {.mr = stranger.mr,
                               .addr = stranger.address(0),
                               .length = 8,
                               .mw_access_flags = IBV_ACCESS_REMOTE_READ}};
  EXPECT_EQ(ibv_bind_mw(a.qp, first, &to), EINVAL);
  EXPECT_EQ(a.send(write_to(b), a.piece(0, 8)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  for (ibv_mw* mw : {own, foreign, aside, first}) EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

class PostingDatagrams : public ::testing::Test {
 protected:
  PostingDatagrams() {
    testing::bring_up(a);
    testing::bring_up(b);
  }
  int send(ibv_ah* ah, unsigned flags = 0) const {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED | flags;
    wr.wr.ud = {.ah = ah, .remote_qpn = b.qp->qp_num, .remote_qkey = testing::kQkey};
    return a.send(wr, a.piece(0, 8));
  }
  ibv_ah* handle(ibv_pd* pd) const {
    ibv_ah_attr attr = testing::address_of(b);
    return ibv_create_ah(pd, &attr);
  }

  Devices devices;
  End a{devices, 0, IBV_QPT_UD};
  End b{devices, 1, IBV_QPT_UD};
};

TEST_F(PostingDatagrams, NeedAHandleOfTheirProtectionDomain) {
  const End stranger(devices, 0);
  ibv_pd* const other = ibv_alloc_pd(a.context);
  ibv_parent_domain_init_attr attr{};
  attr.pd = a.pd;
  ibv_pd* const parent = ibv_alloc_parent_domain(a.context, &attr);
  ibv_ah* const foreign = handle(stranger.pd);
  ibv_ah* const aside = handle(other);
  ibv_ah* const own = handle(parent);
  EXPECT_EQ(send(nullptr), EINVAL);
  EXPECT_EQ(send(foreign), EINVAL);
  EXPECT_EQ(send(aside), EINVAL);
  EXPECT_EQ(send(own, IBV_SEND_IP_CSUM), EINVAL);  // nobody computes it
  EXPECT_EQ(send(own), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  for (ibv_ah* ah : {foreign, aside, own}) EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

/// Queue pairs for the extended way to post.
class Building : public ::testing::Test {
 protected:
  static ibv_qp_ex* make(const End& end, ibv_qp_type type, std::uint64_t operations) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = end.cq;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 2,
                .max_recv_sge = 1,
                .max_inline_data = 16};
    init.qp_type = type;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = end.pd;
    init.send_ops_flags = operations;
    return ibv_qp_to_qp_ex(ibv_create_qp_ex(end.context, &init));
  }
  static void begin(ibv_qp_ex* qp, std::uint64_t id) {
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
  }

  Devices devices;
};

/// ibv_wr_post(3): an error aborts the entire posting.
TEST_F(Building, ABatchIsPostedAsAWholeOrNotAtAll) {
  End a(devices, 0);
  const End b(devices, 1);
  ASSERT_EQ(ibv_destroy_qp(a.qp), 0);
  ibv_qp_ex* const qp = make(a, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND);
  a.qp = &qp->qp_base;
  testing::connect(a, b);
  const auto add = [&](std::uint64_t id, std::uint32_t length) {
    begin(qp, id);
    ibv_wr_rdma_write(qp, b.mr->rkey, b.address(0));
    ibv_wr_set_sge(qp, a.mr->lkey, a.address(0), length);
  };
  ibv_wr_start(qp);
  for (std::uint64_t id = 1; id <= 5; ++id) add(id, 8);  // there is room for four
  EXPECT_EQ(ibv_wr_complete(qp), ENOMEM);
  ibv_wr_start(qp);
  add(6, 8);
  begin(qp, 7);
  ibv_wr_rdma_write(qp, b.mr->rkey, b.address(0));
  const std::array<ibv_sge, 2> halves = {a.piece(0, 1U << 31), a.piece(0, 1)};
  ibv_wr_set_sge_list(qp, halves.size(), halves.data());  // too long for a message
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  devices.host.settle();
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(a.cq, 1, &wc), 0);

  ibv_wr_start(qp);
  add(8, 8);
  begin(qp, 9);
  ibv_wr_rdma_write(qp, b.mr->rkey, b.address(100));
  std::array<char, 3> text{'y', 'e', 's'};
  ibv_wr_set_inline_data(qp, text.data(), text.size());
  EXPECT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(a.await().wr_id, 8U);
  EXPECT_EQ(a.await().wr_id, 9U);
  EXPECT_EQ(std::memcmp(b.memory.data() + 100, "yes", 3), 0);
}

TEST_F(Building, ADatagramWithoutAnAddressIsRefused) {
  End a(devices, 0, IBV_QPT_UD);
  ASSERT_EQ(ibv_destroy_qp(a.qp), 0);
  ibv_qp_ex* const qp = make(a, IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
  a.qp = &qp->qp_base;
  testing::bring_up(a);
  ibv_wr_start(qp);
  begin(qp, 1);
  ibv_wr_send(qp);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  const End stranger(devices, 0);
  ibv_ah_attr attr = testing::address_of(stranger);
  ibv_ah* const foreign = ibv_create_ah(stranger.pd, &attr);
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_set_ud_addr(qp, foreign, 5, 5);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, 1, 0);  // no operation of the type
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  EXPECT_EQ(ibv_destroy_ah(foreign), 0);
}

}  // namespace
}  // namespace verbena::compat
