// SPDX-License-Identifier: Apache-2.0
//
// Memory of the device's own through the C ABI: taken, copied, registered, reached by peers.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

constexpr unsigned kAccess = testing::kAllAccess | IBV_ACCESS_ZERO_BASED;

class DeviceMemory : public ::testing::Test {
 protected:
  DeviceMemory() { testing::connect(owner, peer); }

  ibv_dm* allocate(std::size_t length, std::uint32_t log_alignment = 0,
                   std::uint32_t comp_mask = 0) const {
    ibv_alloc_dm_attr attr{
        .length = length, .log_align_req = log_alignment, .comp_mask = comp_mask};
    errno = 0;
    return ibv_alloc_dm(owner.context, &attr);
  }
  ibv_mr* add(ibv_dm* dm, std::uint64_t offset, std::size_t length,
              unsigned access = kAccess) const {
    errno = 0;
    return ibv_reg_dm_mr(owner.pd, dm, offset, length, access);
  }
  static std::uint64_t word_of(ibv_dm* dm, std::uint64_t offset) {
    std::uint64_t word = 0;
    EXPECT_EQ(ibv_memcpy_from_dm(&word, dm, offset, sizeof word), 0);
    return word;
  }
  /// How the peer's request of 8 bytes ends.
  ibv_wc_status ask(ibv_wr_opcode opcode, const ibv_mr* mr, std::uint64_t address) const {
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {.remote_addr = address, .compare_add = 3, .swap = 0, .rkey = mr->rkey};
    else
      wr.wr.rdma = {.remote_addr = address, .rkey = mr->rkey};
    EXPECT_EQ(peer.send(wr, peer.piece(0, 8)), 0);
    return peer.await().status;
  }

  Devices devices{nic::Limits{.max_dm_size = 4096}};
  End owner{devices, 0};
  End peer{devices, 1};
};

TEST_F(DeviceMemory, IsAsMuchAsTheDeviceTells) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(owner.context, nullptr, &attr), 0);
  EXPECT_EQ(attr.max_dm_size, 4096U);
  EXPECT_EQ(allocate(0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(allocate(4097), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(allocate(64, 40), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(allocate(64, 0, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_dm* const dm = allocate(4096, 12);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(allocate(4), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemory, IsCopiedInUnits) {
  ibv_dm* const dm = allocate(100);
  ASSERT_NE(dm, nullptr);
  const std::uint64_t word = 0x1234;
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 92, &word, sizeof word), 0);
  EXPECT_EQ(word_of(dm, 92), word);
  std::uint64_t to = 0;
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 3, &word, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(&to, dm, 4, 3), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 96, &word, sizeof word), EFAULT);
  EXPECT_EQ(ibv_memcpy_from_dm(&to, dm, 104, 4), EFAULT);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemory, IsRegisteredZeroBased) {
  ibv_dm* const dm = allocate(128);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(add(dm, 0, 64, testing::kAllAccess), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(add(dm, 0, 64, kAccess | IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(add(dm, 0, 132), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(add(dm, ~std::uint64_t{0}, 2), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_dm_mr(peer.pd, dm, 0, 64, kAccess), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_mr* const none = add(dm, 128, 0);
  ASSERT_NE(none, nullptr);
  EXPECT_EQ(ibv_dereg_mr(none), 0);
  ibv_mr* const mr = add(dm, 64, 64);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->length, 64U);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, owner.memory.data(), 64, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemory, IsReachedByPeersAndByOwnRequests) {
  ibv_dm* const dm = allocate(128, 3);
  ibv_mr* const mr = add(dm, 64, 64);
  ASSERT_NE(mr, nullptr);
  const std::uint64_t sent = 40;
  std::memcpy(peer.memory.data(), &sent, sizeof sent);
  EXPECT_EQ(ask(IBV_WR_RDMA_WRITE, mr, 8), IBV_WC_SUCCESS);
  EXPECT_EQ(word_of(dm, 72), 40U);
  EXPECT_EQ(ask(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, 8), IBV_WC_SUCCESS);
  EXPECT_EQ(word_of(dm, 72), 43U);
  EXPECT_EQ(ask(IBV_WR_RDMA_READ, mr, 8), IBV_WC_SUCCESS);
  std::uint64_t read = 0;
  std::memcpy(&read, peer.memory.data(), sizeof read);
  EXPECT_EQ(read, 43U);

  // From the second eight bytes of the region.
  ASSERT_EQ(peer.receive(1, peer.piece(64, 8)), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(owner.send(wr, {.addr = 8, .length = 8, .lkey = mr->lkey}), 0);
  EXPECT_EQ(owner.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(peer.await().status, IBV_WC_SUCCESS);
  std::memcpy(&read, peer.memory.data() + 64, sizeof read);
  EXPECT_EQ(read, 43U);

  EXPECT_EQ(ask(IBV_WR_RDMA_WRITE, mr, 60), IBV_WC_REM_ACCESS_ERR);  // half beyond its end
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemory, CanBeHadByAForkedChild) {
  ibv_dm* const dm = allocate(64);
  ASSERT_NE(dm, nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ibv_dm* const own = allocate(64);
    const std::uint64_t word = 9;
    ibv_device_attr_ex attr{};
    const bool good = ibv_query_device_ex(owner.context, nullptr, &attr) == 0 &&
                      attr.max_dm_size == 4096 && own != nullptr &&
                      ibv_memcpy_to_dm(own, 0, &word, sizeof word) == 0 &&
                      word_of(own, 0) == word && add(own, 0, 64) == nullptr && errno == EIO &&
                      ibv_free_dm(own) == 0 && ibv_free_dm(dm) == EIO;
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

}  // namespace
}  // namespace verbena::compat
