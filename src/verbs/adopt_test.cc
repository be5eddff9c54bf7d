// SPDX-License-Identifier: Apache-2.0
//
// Handles of what C calls have made: queue pairs and completion queues are in queue_pair_test.cc,
// the rdma_cm's objects in cm/id_test.cc.
#include <gtest/gtest.h>

#include <array>

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
