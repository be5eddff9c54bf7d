// SPDX-License-Identifier: Apache-2.0
//
// Regions of nothing, on dma-bufs, and with addresses of their own.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "compat/dmabuf.h"
#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

ibv_send_wr signalled(ibv_wr_opcode opcode) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

class NullRegion : public ::testing::Test {
 protected:
  NullRegion() : mr(ibv_alloc_null_mr(a.pd)) { testing::connect(a, b); }
  ~NullRegion() override { EXPECT_EQ(ibv_dereg_mr(mr), 0); }

  /// Of any address.
  [[nodiscard]] ibv_sge piece(std::uint32_t length) const {
    return {.addr = 0xDEAD'0000'0000'0003, .length = length, .lkey = mr->lkey};
  }

  Devices devices;
  End a{devices, 0};
  End b{devices, 1};
  ibv_mr* mr;
};

TEST_F(NullRegion, HasALkeyOnlyAndCannotBeChanged) {
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, SIZE_MAX);
  EXPECT_EQ(mr->rkey, 0U);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, testing::kAllAccess),
            IBV_REREG_MR_ERR_INPUT);
  ibv_send_wr wr = signalled(IBV_WR_RDMA_READ);
  wr.wr.rdma = {.remote_addr = 0, .rkey = mr->lkey};
  ASSERT_EQ(b.send(wr, b.piece(0, 8)), 0);
  EXPECT_EQ(b.await().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(NullRegion, ReadsAsZerosAlsoAfterItWasWritten) {
  std::ranges::fill(b.memory, std::byte{0xEE});
  constexpr std::uint32_t kSize = 20000;
  ibv_send_wr wr = signalled(IBV_WR_RDMA_READ);
  wr.wr.rdma = {.remote_addr = b.address(0), .rkey = b.mr->rkey};
  ASSERT_EQ(a.send(wr, piece(kSize)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);

  wr = signalled(IBV_WR_RDMA_WRITE);
  wr.wr.rdma = {.remote_addr = b.address(0), .rkey = b.mr->rkey};
  ASSERT_EQ(a.send(wr, piece(kSize)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  const auto zero = [](std::byte byte) { return byte == std::byte{0}; };
  EXPECT_TRUE(std::ranges::all_of(std::span(b.memory).first(kSize), zero));
  EXPECT_EQ(b.memory[kSize], std::byte{0xEE});
}

TEST_F(NullRegion, TakesPartsOfMessagesThatNobodyWants) {
  std::ranges::fill(b.memory, std::byte{0x55});
  std::array<ibv_sge, 2> pieces{piece(5000), a.piece(0, 100)};
  ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = pieces.data(), .num_sge = 2};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(a.qp, &receive, &bad), 0);
  b.memory[5000] = std::byte{0x66};
  ASSERT_EQ(b.send(signalled(IBV_WR_SEND), b.piece(0, 5100)), 0);
  EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.memory[0], std::byte{0x66});
  EXPECT_EQ(a.memory[1], std::byte{0x55});

  ibv_send_wr wr = signalled(IBV_WR_ATOMIC_FETCH_AND_ADD);
  wr.wr.atomic = {.remote_addr = b.address(64), .compare_add = 1, .swap = 0, .rkey = b.mr->rkey};
  ASSERT_EQ(a.send(wr, piece(8)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.memory[64], std::byte{0x56});
}

TEST(ZeroBased, RegionsStaySoWhenTheyMove) {
  Devices devices;
  End a(devices, 0);
  End b(devices, 1);
  testing::connect(a, b);
  ibv_mr* const mr =
      ibv_reg_mr(b.pd, b.memory.data(), 64, testing::kAllAccess | IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(mr, nullptr);
  const auto write = [&](std::uint64_t address) {
    ibv_send_wr wr = signalled(IBV_WR_RDMA_WRITE);
    wr.wr.rdma = {.remote_addr = address, .rkey = mr->rkey};
    EXPECT_EQ(a.send(wr, a.piece(0, 8)), 0);
    return a.await().status;
  };
  a.memory[0] = std::byte{1};
  EXPECT_EQ(write(16), IBV_WC_SUCCESS);
  EXPECT_EQ(b.memory[16], std::byte{1});
  ASSERT_EQ(
      ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, b.memory.data() + 1000, 64, 0), 0);
  EXPECT_EQ(write(16), IBV_WC_SUCCESS);
  EXPECT_EQ(b.memory[1016], std::byte{1});
  EXPECT_EQ(write(b.address(1016)), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST(DmaBufs, OfWhichTheKernelKnowsNothingAreRefused) {
  Devices devices;
  const End end(devices, 0);
  const int memory = ::memfd_create("test", MFD_CLOEXEC);
  const auto refusal = [&](int fd, std::uint64_t offset, std::uint64_t iova, int access) {
    errno = 0;
    EXPECT_EQ(ibv_reg_dmabuf_mr(end.pd, offset, 64, iova, fd, access), nullptr);
    return errno;
  };
  EXPECT_EQ(refusal(-1, 0, 0, 0), EBADF);
  EXPECT_EQ(refusal(memory, 0, 0, 0), EINVAL);  // a file is no dma-buf
  EXPECT_EQ(refusal(memory, 8, 16, 0), EINVAL);
  EXPECT_EQ(refusal(memory, 0, 0, IBV_ACCESS_ZERO_BASED), EINVAL);
  EXPECT_EQ(refusal(memory, 0, 0, IBV_ACCESS_ON_DEMAND), EINVAL);
  ::close(memory);
}

// No machine of ours has a driver that makes dma-bufs; a file of memory is mapped alike.
TEST(DmaBufs, AreMappedFromTheMiddleOfAPage) {
  const int memory = ::memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(memory, 8192), 0);
  const char text[] = "buffer";
  ASSERT_EQ(::pwrite(memory, text, sizeof text, 5000), static_cast<ssize_t>(sizeof text));
  {
    const auto mapped = map_buffer(memory, 5000, 100, true);
    ASSERT_TRUE(mapped);
    EXPECT_STREQ(reinterpret_cast<const char*>(mapped->first), text);
    *mapped->first = std::byte{'B'};
  }
  char first = 0;
  EXPECT_EQ(::pread(memory, &first, 1, 5000), 1);
  EXPECT_EQ(first, 'B');
  EXPECT_EQ(map_buffer(memory, 5000, 3193, false).error().condition, std::errc::invalid_argument);
  EXPECT_EQ(map_buffer(memory, 9000, 1, false).error().condition, std::errc::invalid_argument);
  EXPECT_EQ(map_buffer(memory, 0, 0, false).error().condition, std::errc::invalid_argument);
  ::close(memory);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(map_buffer(ends[0], 0, 1, false).error().condition, std::errc::operation_not_supported);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace verbena::compat
