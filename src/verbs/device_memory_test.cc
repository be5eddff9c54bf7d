// SPDX-License-Identifier: Apache-2.0
#include "verbena/device_memory.h"

#include <gtest/gtest.h>

#include <optional>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::fill;
using testing::must;
using testing::Pair;

TEST(DeviceMemory, IsCopiedWithinItsBounds) {
  const End end("vrb0");
  const device_memory memory = must(end.ctx.alloc_dm(256, 6));
  EXPECT_EQ(memory.size(), 256);
  std::array<std::byte, 16> bytes{};
  fill(bytes, 'd');
  must(memory.copy_to(240, bytes));
  std::array<std::byte, 20> back{};
  must(memory.copy_from(236, back));
  EXPECT_EQ(back[3], std::byte{0});
  EXPECT_EQ(back[19], std::byte{'d'});
  EXPECT_EQ(memory.copy_to(244, bytes).error(), std::errc::result_out_of_range);
  EXPECT_EQ(memory.copy_from(UINT64_MAX, back).error(), std::errc::result_out_of_range);
  EXPECT_EQ(memory.copy_to(2, bytes).error(), std::errc::invalid_argument);
  EXPECT_EQ(memory.copy_to(0, std::span(bytes).first(3)).error(), std::errc::invalid_argument);
}

TEST(DeviceMemory, IsReachedByAPeerThroughItsRegion) {
  const Pair<rc> pair;
  std::optional<device_memory> memory = must(pair.right.ctx.alloc_dm(256));
  const memory_region region = must(pair.right.pd.reg_dm_mr(*memory, 64, 128, access::remote_all));
  EXPECT_TRUE(region.bytes().empty());
  EXPECT_EQ(must(region.remote()).address(), 0);
  fill(pair.left.memory.bytes(), 'w');
  must(pair.left_qp.write(must(pair.left.memory.slice(0, 8)), must(must(region.remote()).at(8))));
  EXPECT_TRUE(pair.left.next().ok());
  testing::settle(pair.right.pd);
  std::array<std::byte, 8> got{};
  must(memory->copy_from(64 + 8, got));
  EXPECT_EQ(got[7], std::byte{'w'});

  // The region keeps the memory.
  EXPECT_EQ(memory->close().error(), std::errc::device_or_resource_busy);
  memory.reset();
  must(pair.left_qp.read(must(pair.left.memory.slice(512, 8)),
                         must(must(region.remote()).slice(8, 8))));
  EXPECT_TRUE(pair.left.next().ok());
  EXPECT_EQ(pair.left.memory.bytes()[519], std::byte{'w'});
}

TEST(DeviceMemory, WrongValuesAreRefused) {
  const End end("vrb0");
  EXPECT_EQ(end.ctx.alloc_dm(0).error(), std::errc::invalid_argument);
  EXPECT_EQ(end.ctx.alloc_dm(std::size_t{1} << 60).error(), std::errc::invalid_argument);
  auto memory = must(end.ctx.alloc_dm(64));
  EXPECT_EQ(end.pd.reg_dm_mr(memory, 32, 64, access::remote_all).error(),
            std::errc::result_out_of_range);
  const auto taken = std::move(memory);
  // NOLINTBEGIN(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(memory.size(), 0);
  EXPECT_EQ(memory.copy_to(0, {}).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(end.pd.reg_dm_mr(memory, 0, 8, access::none).error(), std::errc::bad_file_descriptor);
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace verbena::verbs
