// SPDX-License-Identifier: Apache-2.0
#include "verbena/memory_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::fill;
using ::testing::HasSubstr;
using testing::must;
using testing::Pair;

/// The left end owns windows, the right one writes into them.
class MemoryWindow : public ::testing::Test {
 protected:
  /// How the peer's WRITE of eight bytes ends.
  [[nodiscard]] ibv_wc_status write(const remote_region& to) const {
    must(pair.right_qp.write(must(pair.right.memory.slice(0, 8)), to));
    const ibv_wc_status status = pair.right.next().status();
    testing::settle(pair.left.pd);
    return status;
  }
  [[nodiscard]] window_range part(std::uint64_t offset, std::uint64_t length,
                                  access rights = access::remote_write) const {
    return {.of = pair.left.memory, .offset = offset, .length = length, .rights = rights};
  }

  Pair<rc> pair;
};

TEST_F(MemoryWindow, OfTypeOneOpensAPartUntilItIsUnbound) {
  auto window = must(pair.left.pd.alloc_mw<window_type::one>());
  EXPECT_EQ(window.remote().error(), std::errc::not_connected);
  must(window.bind(pair.left_qp, part(100, 50), {.wr_id = 4}));
  const work_completion bound = pair.left.next();
  EXPECT_TRUE(bound.ok());
  EXPECT_EQ(bound.opcode(), IBV_WC_BIND_MW);
  EXPECT_EQ(bound.wr_id(), 4);
  const remote_region open = must(window.remote());
  EXPECT_EQ(open.size(), 50);
  fill(pair.right.memory.bytes(), 'm');
  EXPECT_EQ(write(must(open.at(42))), IBV_WC_SUCCESS);
  EXPECT_EQ(pair.left.memory.bytes()[149], std::byte{'m'});

  must(window.unbind(pair.left_qp));
  EXPECT_TRUE(pair.left.next().ok());
  EXPECT_EQ(window.remote().error(), std::errc::not_connected);
  EXPECT_EQ(write(open), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindow, OfTypeOneIsBoundAnewWithAnotherKey) {
  auto window = must(pair.left.pd.alloc_mw<window_type::one>());
  must(window.bind(pair.left_qp, part(0, 8)));
  EXPECT_TRUE(pair.left.next().ok());
  const remote_region before = must(window.remote());
  must(window.bind(pair.left_qp, part(200, 8, access::remote_write | access::zero_based)));
  EXPECT_TRUE(pair.left.next().ok());
  const remote_region now = must(window.remote());
  EXPECT_NE(before.rkey(), now.rkey());
  EXPECT_EQ(now.address(), 0);
  fill(pair.right.memory.bytes(), 'z');
  EXPECT_EQ(write(now), IBV_WC_SUCCESS);
  EXPECT_EQ(pair.left.memory.bytes()[200], std::byte{'z'});
  EXPECT_EQ(write(before), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindow, OfTypeTwoIsBoundAndInvalidatedByRequests) {
  auto window = must(pair.left.pd.alloc_mw<window_type::two>());
  EXPECT_EQ(window.invalidation<rc>().error(), std::errc::not_connected);
  must(pair.left_qp.post(must(window.binding<rc>(part(64, 64)))));
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_BIND_MW);
  const remote_region first = must(window.remote());
  EXPECT_EQ(write(first), IBV_WC_SUCCESS);
  must(pair.left_qp.post(must(window.invalidation<rc>())));
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_LOCAL_INV);
  must(pair.left_qp.post(must(window.binding<rc>(part(64, 64)))));
  EXPECT_TRUE(pair.left.next().ok());
  EXPECT_NE(must(window.remote()).rkey(), first.rkey());
  EXPECT_EQ(write(must(window.remote())), IBV_WC_SUCCESS);
  EXPECT_EQ(write(first), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindow, OfTypeTwoIsInvalidatedByThePeer) {
  auto window = must(pair.left.pd.alloc_mw<window_type::two>());
  must(pair.left_qp.post(must(window.binding<rc>(part(64, 64)))));
  EXPECT_TRUE(pair.left.next().ok());
  const remote_region open = must(window.remote());
  must(pair.left_qp.post_recv(must(pair.left.memory.slice(0, 8))));
  must(pair.right_qp.send_with_invalidate(must(pair.right.memory.slice(0, 8)), open.rkey()));
  EXPECT_TRUE(pair.right.next().ok());
  EXPECT_EQ(pair.left.next().invalidated_rkey(), open.rkey());
  window.invalidated();
  EXPECT_EQ(window.remote().error(), std::errc::not_connected);
  must(pair.left.memory.close());
  EXPECT_EQ(write(open), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindow, HoldsTheRegionThatItIsBoundTo) {
  auto window = must(pair.left.pd.alloc_mw<window_type::one>());
  must(window.bind(pair.left_qp, part(0, 8)));
  EXPECT_TRUE(pair.left.next().ok());
  EXPECT_EQ(pair.left.memory.close().error(), std::errc::device_or_resource_busy);
  must(window.unbind(pair.left_qp));
  EXPECT_TRUE(pair.left.next().ok());
  window.settled();
  must(pair.left.memory.close());
}

TEST_F(MemoryWindow, MayOutliveTheHandleOfItsRegion) {
  std::string lost;
  on_lost([&](const char* verb, std::error_code /*code*/) { lost = verb; });
  {
    auto window = must(pair.left.pd.alloc_mw<window_type::one>());
    {
      auto region = must(pair.left.pd.alloc_mr(64, testing::kEverything));
      must(window.bind(pair.left_qp, {region, 0, 64, access::remote_write}));
      EXPECT_TRUE(pair.left.next().ok());
    }
    EXPECT_EQ(write(must(window.remote())), IBV_WC_SUCCESS);
  }
  on_lost({});
  EXPECT_EQ(lost, "");
}

TEST_F(MemoryWindow, RightsAndBoundsAreCheckedBeforeTheCall) {
  auto window = must(pair.left.pd.alloc_mw<window_type::one>());
  const auto refused = [&](const window_range& range) {
    const auto bound = window.bind(pair.left_qp, range);
    return bound ? std::errc() : static_cast<std::errc>(bound.error().code().value());
  };
  EXPECT_EQ(refused(part(0, 8, access::none)), std::errc::invalid_argument);
  EXPECT_EQ(refused(part(0, 8, access::remote_read | access::local_write)),
            std::errc::invalid_argument);
  EXPECT_EQ(refused(part(4090, 8)), std::errc::result_out_of_range);
  EXPECT_EQ(refused(part(8, UINT64_MAX)), std::errc::result_out_of_range);
  EXPECT_EQ(refused(part(8, 0)), std::errc::result_out_of_range);
  const auto closed = must(pair.left.pd.alloc_mr(64, access::remote_all));
  EXPECT_EQ(refused({closed, 0, 8, access::remote_read}), std::errc::permission_denied);
  const auto only_read = must(pair.left.pd.alloc_mr(64, access::mw_bind | access::remote_read));
  EXPECT_EQ(refused({only_read, 0, 8, access::remote_write}), std::errc::permission_denied);
  EXPECT_THAT(window.bind(pair.left_qp, {only_read, 0, 8, access::remote_write}).error().message(),
              HasSubstr("need a region with local_write"));
  EXPECT_EQ(pair.left_qp.state(), qp_state::rts);
}

TEST_F(MemoryWindow, ThatWasMovedFromReports) {
  auto window = must(pair.left.pd.alloc_mw<window_type::one>());
  const auto taken = std::move(window);
  // NOLINTBEGIN(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(window.bind(pair.left_qp, part(0, 8)).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(window.remote().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(window.rkey(), 0);
  window.settled();
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace verbena::verbs
