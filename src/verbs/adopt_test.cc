// SPDX-License-Identifier: Apache-2.0
//
// Handles of what C calls have made: queue pairs are in queue_pair_test.cc, the rdma_cm's objects
// in cm/id_test.cc.
#include <gtest/gtest.h>

#include <array>

#include "verbena/queue_pair_ex.h"
#include "verbena/shared_receive_queue.h"
#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::must;

ibv_context* open_first() {
  ibv_device** const all = ibv_get_device_list(nullptr);
  ibv_context* const opened = ibv_open_device(all[0]);
  ibv_free_device_list(all);
  return opened;
}

TEST(Adopt, AContextAndWhatIsMadeOfIt) {
  ibv_context* const opened = open_first();
  ASSERT_NE(opened, nullptr);
  {
    const auto borrowed = must(context::adopt(opened, ownership::borrowed));
    const auto pd = must(borrowed.alloc_pd());
    EXPECT_EQ(pd.native()->context, opened);
    must(borrowed.query_device());
  }
  auto owned = must(context::adopt(opened, ownership::owned));
  EXPECT_EQ(owned.native(), opened) << "its borrower has left it open";
  const auto child = must(owned.alloc_pd());
  EXPECT_EQ(owned.close().error(), std::errc::device_or_resource_busy);
  EXPECT_EQ(context::adopt(nullptr, ownership::owned).error(), std::errc::invalid_argument);
}

TEST(Adopt, AProtectionDomain) {
  const End end("vrb0");
  ibv_pd* const made = ibv_alloc_pd(end.ctx.native());
  ASSERT_NE(made, nullptr);
  {
    const auto borrowed = must(protection_domain::adopt(made, ownership::borrowed));
    must(borrowed.alloc_mr(64, access::local_write));
    must(borrowed.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
  }
  auto owned = must(protection_domain::adopt(made, ownership::owned));
  must(owned.alloc_mr(64, access::local_write));
  must(owned.close());
  EXPECT_EQ(protection_domain::adopt(nullptr, ownership::owned).error(),
            std::errc::invalid_argument);
}

TEST(Adopt, AMemoryRegion) {
  const End end("vrb0");
  std::array<std::byte, 256> memory{};
  constexpr access kRights = access::local_write | access::remote_read;
  ibv_mr* const made = ibv_reg_mr(end.pd.native(), memory.data(), memory.size(),
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(made, nullptr);
  {
    const auto borrowed = must(memory_region::adopt(made, kRights, ownership::borrowed));
    EXPECT_EQ(borrowed.bytes().data(), memory.data());
    EXPECT_EQ(borrowed.size(), memory.size());
    EXPECT_EQ(must(borrowed.slice(16, 8)).address(),
              reinterpret_cast<std::uint64_t>(memory.data()) + 16);
    EXPECT_EQ(borrowed.slice(250, 8).error(), std::errc::result_out_of_range);
    EXPECT_EQ(must(borrowed.remote()).rkey(), made->rkey);
  }
  auto owned = must(memory_region::adopt(made, access::local_write, ownership::owned));
  EXPECT_EQ(owned.remote().error(), std::errc::permission_denied);
  must(owned.close());
  EXPECT_EQ(memory_region::adopt(nullptr, kRights, ownership::owned).error(),
            std::errc::invalid_argument);
}

TEST(Adopt, ACompletionQueue) {
  const End end("vrb0");
  ibv_cq* const made = ibv_create_cq(end.ctx.native(), 16, nullptr, nullptr, 0);
  ASSERT_NE(made, nullptr);
  {
    // What is made with a borrowed one completes there.
    const auto borrowed = must(completion_queue::adopt(made, ownership::borrowed));
    auto qp = must(end.pd.create_qp<rc>({.send_cq = borrowed, .recv_cq = borrowed}));
    must(qp.to_error());
    must(qp.post_recv(must(end.memory.slice(0, 64)), 9));  // flushed
    EXPECT_EQ(testing::next_of(borrowed).wr_id(), 9);
  }
  auto owned = must(completion_queue::adopt(made, ownership::owned));
  EXPECT_GE(owned.depth(), 16U) << "its borrower has left it";
  must(owned.close());
  EXPECT_EQ(completion_queue::adopt(nullptr, ownership::borrowed).error(),
            std::errc::invalid_argument);
}

TEST(Adopt, AnExtendedCompletionQueue) {
  const End end("vrb0");
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 16;
  ibv_cq_ex* const made = ibv_create_cq_ex(end.ctx.native(), &attributes);
  ASSERT_NE(made, nullptr);
  {
    const auto borrowed = must(completion_queue_ex::adopt(made, ownership::borrowed));
    const poll_guard nothing = borrowed.start_poll();
    EXPECT_FALSE(nothing);
  }
  auto owned = must(completion_queue_ex::adopt(made, ownership::owned));
  must(owned.close());
}

TEST(Adopt, AnExtendedQueuePair) {
  const testing::Pair<rc> pair;
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = attributes.recv_cq = pair.left.cq.native();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {.max_send_wr = 4,
                    .max_recv_wr = 4,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  attributes.pd = pair.left.pd.native();
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.send_ops_flags = IBV_QP_EX_WITH_SEND;
  ibv_qp* const made = ibv_create_qp_ex(pair.left.ctx.native(), &attributes);
  ASSERT_NE(made, nullptr);
  auto owned =
      must(queue_pair_ex<rc, send_ops::send>::adopt(ibv_qp_to_qp_ex(made), {}, ownership::owned));
  const auto row = must(pair.left.ctx.routable_gid());
  auto peer =
      must(pair.right.pd.create_qp<rc>({.send_cq = pair.right.cq, .recv_cq = pair.right.cq}));
  const qp_endpoint here = must(owned.endpoint(row.of, row.index));
  const qp_endpoint there = must(peer.endpoint(row.of, row.index));
  must(owned.connect(here, there));
  must(peer.connect(there, here));
  must(peer.post_recv(must(pair.right.memory.slice(0, 64)), 3));
  auto session = owned.start();
  session.send().set_slice(must(pair.left.memory.slice(0, 8)));
  must(session.complete());
  EXPECT_EQ(pair.right.next().wr_id(), 3);
}

TEST(Adopt, ASharedReceiveQueue) {
  const End end("vrb0");
  ibv_srq_init_attr attributes{};
  attributes.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  ibv_srq* const made = ibv_create_srq(end.pd.native(), &attributes);
  ASSERT_NE(made, nullptr);
  {
    const auto borrowed = must(shared_receive_queue::adopt(made, ownership::borrowed));
    must(borrowed.post_recv(must(end.memory.slice(0, 64))));
    const auto qp =
        must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq, .srq = &borrowed}));
    EXPECT_EQ(qp.native()->srq, made);
  }
  auto owned = must(shared_receive_queue::adopt(made, ownership::owned));
  EXPECT_GE(must(owned.query()).max_wr, 8U);
  must(owned.close());
  EXPECT_EQ(shared_receive_queue::adopt(nullptr, ownership::owned).error(),
            std::errc::invalid_argument);
}

}  // namespace
}  // namespace verbena::verbs
