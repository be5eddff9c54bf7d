// SPDX-License-Identifier: Apache-2.0
#include "verbena/memory_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::fill;
using ::testing::HasSubstr;
using testing::must;
using testing::Pair;

/// The left end writes to regions of the right one's.
class MemoryRegion : public ::testing::Test {
 protected:
  [[nodiscard]] ibv_wc_status write(const remote_region& to) const {
    must(pair.left_qp.write(must(pair.left.memory.slice(0, 8)), to));
    const ibv_wc_status status = pair.left.next().status();
    testing::settle(pair.right.pd);
    return status;
  }
  [[nodiscard]] const protection_domain& pd() const { return pair.right.pd; }

  Pair<rc> pair;
  std::vector<std::byte> memory = std::vector<std::byte>(4096);
};

TEST_F(MemoryRegion, BorrowsTheCallersMemory) {
  const auto region = must(pd().reg_mr(std::span(memory), access::remote_all));
  EXPECT_EQ(region.bytes().data(), memory.data());
  EXPECT_EQ(region.size(), 4096);
  fill(pair.left.memory.bytes(), 'b');
  EXPECT_EQ(write(must(must(region.remote()).at(4088))), IBV_WC_SUCCESS);
  EXPECT_EQ(memory.back(), std::byte{'b'});
  EXPECT_EQ(must(region.remote()).at(4097).error(), std::errc::result_out_of_range);
}

TEST_F(MemoryRegion, OwnsAVector) {
  memory[0] = std::byte{'v'};
  const std::byte* const where = memory.data();
  const auto region = must(pd().reg_mr(std::move(memory), access::remote_all));
  EXPECT_EQ(region.bytes().data(), where);
  EXPECT_EQ(region.bytes().front(), std::byte{'v'});
  EXPECT_EQ(write(must(region.remote())), IBV_WC_SUCCESS);
}

TEST_F(MemoryRegion, ItsMemoryIsThereWhileSomebodyLeasesIt) {
  std::optional<memory_region> region = must(pd().alloc_mr(64, access::remote_all));
  const remote_region there = must(region->remote());
  const std::span<std::byte> bytes = region->bytes();
  detail::keep lease = region->lease();
  EXPECT_EQ(region->close().error(), std::errc::device_or_resource_busy);
  region.reset();
  fill(pair.left.memory.bytes(), 'l');
  EXPECT_EQ(write(there), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes[7], std::byte{'l'});
  lease.reset();
  EXPECT_EQ(write(there), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryRegion, OfConstMemoryGetsNoRightToWrite) {
  const std::span<const std::byte> fixed(memory);
  for (const access rights : {access::local_write, access::remote_all, access::remote_atomic}) {
    const auto refused = pd().reg_mr(fixed, rights);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), std::errc::permission_denied);
  }
  memory[0] = std::byte{'c'};
  const auto region = must(pd().reg_mr(fixed, access::remote_read));
  must(pair.left_qp.read(must(pair.left.memory.slice(0, 8)), must(region.remote())));
  EXPECT_TRUE(pair.left.next().ok());
  EXPECT_EQ(pair.left.memory.bytes()[0], std::byte{'c'});
  EXPECT_EQ(write(must(region.remote())), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryRegion, WrongOnesAreRefused) {
  EXPECT_EQ(pd().reg_mr(std::span<std::byte>(), access::local_write).error(),
            std::errc::invalid_argument);
  const auto no_local = pd().reg_mr(std::span(memory), access::remote_write);
  ASSERT_FALSE(no_local);
  EXPECT_THAT(no_local.error().message(), HasSubstr("need local_write"));
  EXPECT_EQ(pd().alloc_mr(0, access::none).error(), std::errc::invalid_argument);
  EXPECT_EQ(pd().alloc_mr(SIZE_MAX, access::none).error(), std::errc::invalid_argument);
  const auto local = must(pd().alloc_mr(64, access::local_write));
  EXPECT_EQ(local.remote().error(), std::errc::permission_denied);
  EXPECT_EQ(local.slice(60, 5).error(), std::errc::result_out_of_range);
  EXPECT_EQ(local.slice(SIZE_MAX, 1).error(), std::errc::result_out_of_range);
  EXPECT_EQ(must(local.slice(8, 8)).slice(4, 5).error(), std::errc::result_out_of_range);
}

TEST_F(MemoryRegion, ZeroBasedOnesBeginAtZero) {
  const auto region = must(pd().reg_mr(std::span(memory), access::remote_all | access::zero_based));
  const remote_region there = must(region.remote());
  EXPECT_EQ(there.address(), 0);
  fill(pair.left.memory.bytes(), 'z');
  EXPECT_EQ(write(must(there.at(100))), IBV_WC_SUCCESS);
  EXPECT_EQ(memory[107], std::byte{'z'});
  EXPECT_EQ(memory[108], std::byte{0});
  // Its own requests begin there, too.
  must(pair.right_qp.write(must(region.slice(100, 8)),
                           must(must(pair.left.memory.remote()).at(512))));
  EXPECT_TRUE(pair.right.next().ok());
  testing::settle(pair.left.pd);
  EXPECT_EQ(pair.left.memory.bytes()[519], std::byte{'z'});
}

TEST_F(MemoryRegion, RightsAreTakenAndGiven) {
  auto region = must(pd().reg_mr(std::span(memory), access::local_write));
  EXPECT_FALSE(region.remote());
  must(region.change_access(access::remote_all));
  EXPECT_EQ(write(must(region.remote())), IBV_WC_SUCCESS);
  const remote_region before = must(region.remote());
  must(region.change_access(access::local_write | access::remote_read));
  EXPECT_EQ(region.rights(), access::local_write | access::remote_read);
  EXPECT_EQ(write(before), IBV_WC_REM_ACCESS_ERR);
  const auto wrong = region.change_access(access::remote_write);
  ASSERT_FALSE(wrong);
  EXPECT_STREQ(wrong.error().verb(), "ibv_rereg_mr");
  EXPECT_EQ(region.rights(), access::local_write | access::remote_read);
}

TEST_F(MemoryRegion, OnDemandIsAllOfTheProcess) {
  const auto region = must(pd().reg_on_demand(access::remote_all));
  const remote_region all = must(region.remote());
  fill(pair.left.memory.bytes(), 'o');
  EXPECT_EQ(write(must(all.slice(reinterpret_cast<std::uint64_t>(memory.data()), 8))),
            IBV_WC_SUCCESS);
  EXPECT_EQ(memory[7], std::byte{'o'});
  // Memory that comes later is in it.
  std::vector<std::byte> later(1 << 20);
  EXPECT_EQ(write(must(all.slice(reinterpret_cast<std::uint64_t>(later.data()), 8))),
            IBV_WC_SUCCESS);
  EXPECT_EQ(later[7], std::byte{'o'});
}

TEST_F(MemoryRegion, TheNullRegionReadsAsZerosAndForgets) {
  const auto null = must(pair.left.pd.alloc_null_mr());
  EXPECT_TRUE(null.bytes().empty());
  EXPECT_EQ(null.remote().error(), std::errc::permission_denied);
  fill(pair.right.memory.bytes(), 'n');
  testing::settle(pair.right.pd);
  const mr_slice nothing = must(null.slice(12345, 64));
  must(pair.left_qp.read(nothing, must(pair.right.memory.remote())));
  EXPECT_TRUE(pair.left.next().ok());
  must(pair.left_qp.write(nothing, must(pair.right.memory.remote())));
  EXPECT_TRUE(pair.left.next().ok());
  testing::settle(pair.right.pd);
  EXPECT_EQ(pair.right.memory.bytes()[63], std::byte{0});
  EXPECT_EQ(pair.right.memory.bytes()[64], std::byte{'n'});
}

TEST_F(MemoryRegion, WhatIsNoDmaBufIsRefused) {
  const auto none = pd().reg_dmabuf(-1, 0, 64, 0, access::local_write);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error(), std::errc::bad_file_descriptor);
  EXPECT_STREQ(none.error().verb(), "ibv_reg_dmabuf_mr");
  const int file = ::memfd_create("test", MFD_CLOEXEC);
  EXPECT_EQ(pd().reg_dmabuf(file, 0, 64, 0, access::local_write).error(),
            std::errc::invalid_argument);
  ::close(file);
}

TEST_F(MemoryRegion, ThatWasMovedFromReports) {
  auto region = must(pd().alloc_mr(64, access::remote_all));
  const auto taken = std::move(region);
  // NOLINTBEGIN(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(region.slice(0, 1).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(region.remote().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(region.change_access(access::none).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(region.size(), 0);
  EXPECT_EQ(region.lkey(), 0);
  EXPECT_TRUE(region.bytes().empty());
  EXPECT_EQ(region.lease(), nullptr);
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace verbena::verbs
