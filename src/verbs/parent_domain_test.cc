// SPDX-License-Identifier: Apache-2.0
#include "verbena/parent_domain.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <set>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::must;
using testing::Pair;

TEST(ParentDomain, IsUsedAsAProtectionDomain) {
  const End left("vrb0");
  const End right("vrb1");
  std::optional<thread_domain> thread = must(left.ctx.alloc_td());
  std::optional<protection_domain> parent = must(left.pd.make_parent_domain(&*thread));
  auto qp = must(parent->create_qp<rc>({.send_cq = left.cq, .recv_cq = left.cq}));
  auto peer = must(right.pd.create_qp<rc>({.send_cq = right.cq, .recv_cq = right.cq}));
  const auto row = must(left.ctx.routable_gid());
  const qp_endpoint here = must(qp.endpoint(row.of, row.index));
  const qp_endpoint there = must(peer.endpoint(row.of, row.index));
  must(qp.connect(here, there));
  must(peer.connect(there, here));
  // A region of the domain itself has keys that are good for the parent's queue pairs.
  must(peer.post_recv(must(right.memory.slice(0, 64))));
  must(qp.send(must(left.memory.slice(0, 8))));
  EXPECT_TRUE(left.next().ok());
  EXPECT_EQ(right.next().byte_len(), 8);

  EXPECT_EQ(thread->close().error(), std::errc::device_or_resource_busy);
  EXPECT_EQ(parent->close().error(), std::errc::device_or_resource_busy);
  thread.reset();
  parent.reset();
  EXPECT_EQ(qp.state(), qp_state::rts);
}

TEST(ParentDomain, PutsQueuesWhereTheProgramWants) {
  const End end("vrb0");
  std::set<void*> live;
  {
    const auto parent =
        must(end.pd.make_parent_domain(nullptr, {.allocate =
                                                     [&](std::size_t size, std::size_t alignment) {
                                                       void* const memory =
                                                           std::aligned_alloc(alignment, size);
                                                       live.insert(memory);
                                                       return memory;
                                                     },
                                                 .release =
                                                     [&](void* memory) {
                                                       EXPECT_EQ(live.erase(memory), 1);
                                                       std::free(memory);
                                                     }}));
    const auto qp = must(parent.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
    EXPECT_FALSE(live.empty());
    const std::size_t of_qp = live.size();
    const auto cq = must(end.ctx.create_cq_ex({.depth = 16, .parent_domain = &parent}));
    EXPECT_GT(live.size(), of_qp);
  }
  EXPECT_TRUE(live.empty());
}

TEST(ParentDomain, AnAllocatorThatHasNothingMakesNothing) {
  const End end("vrb0");
  const auto parent = must(end.pd.make_parent_domain(
      nullptr, {.allocate = [](std::size_t, std::size_t) -> void* { return nullptr; },
                .release = [](void*) {}}));
  const auto qp = parent.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq});
  ASSERT_FALSE(qp);
  EXPECT_EQ(qp.error(), std::errc::not_enough_memory);
}

TEST(ParentDomain, WrongValuesAreRefused) {
  const End end("vrb0");
  const End stranger("vrb1");
  const auto foreign = must(stranger.ctx.alloc_td());
  EXPECT_EQ(end.pd.make_parent_domain(&foreign).error(), std::errc::invalid_argument);
  EXPECT_EQ(end.pd
                .make_parent_domain(nullptr, {.allocate = [](std::size_t, std::size_t) -> void* {
                                      return nullptr;
                                    }})
                .error(),
            std::errc::invalid_argument);
  // A queue's domain must be a parent domain.
  EXPECT_EQ(end.ctx.create_cq_ex({.parent_domain = &end.pd}).error(), std::errc::invalid_argument);
  auto thread = must(end.ctx.alloc_td());
  const auto taken = std::move(thread);
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(end.pd.make_parent_domain(&thread).error(), std::errc::bad_file_descriptor);
}

}  // namespace
}  // namespace verbena::verbs
