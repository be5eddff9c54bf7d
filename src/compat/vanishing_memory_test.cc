// SPDX-License-Identifier: Apache-2.0
// Memory that the program takes away after it was registered.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/test_faults.h"
#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;
using verbena::testing::Pages;

constexpr std::size_t kPages = 4;

/// Pages of an end's, registered, which it may take away.
struct Mortal {
  explicit Mortal(const End& the_end)
      : end(the_end),
        mr(ibv_reg_mr(the_end.pd, pages.bytes().data(), size(), testing::kAllAccess)) {
    EXPECT_NE(mr, nullptr);
  }
  ~Mortal() { EXPECT_EQ(ibv_dereg_mr(mr), 0); }
  Mortal(const Mortal&) = delete;
  Mortal& operator=(const Mortal&) = delete;

  [[nodiscard]] std::size_t size() const { return pages.bytes().size(); }
  [[nodiscard]] std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(pages.bytes().data() + offset);
  }
  [[nodiscard]] ibv_sge piece(std::size_t offset, std::size_t length) const {
    return {
        .addr = address(offset), .length = static_cast<std::uint32_t>(length), .lkey = mr->lkey};
  }

  const End& end;
  Pages pages{kPages};
  ibv_mr* mr;
};

ibv_send_wr work(ibv_wr_opcode opcode) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

ibv_send_wr work(ibv_wr_opcode opcode, std::uint64_t address, std::uint32_t rkey) {
  ibv_send_wr wr = work(opcode);
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    wr.wr.atomic = {.remote_addr = address, .compare_add = 1, .swap = 1, .rkey = rkey};
  } else {
    wr.wr.rdma = {.remote_addr = address, .rkey = rkey};
  }
  return wr;
}

class VanishingMemoryTest : public ::testing::Test {
 protected:
  VanishingMemoryTest() { testing::connect(a, b); }

  /// The next asynchronous event of an end; none is there without waiting.
  static std::optional<ibv_event_type> event_of(const End& end) {
    ibv_async_event event{};
    if (ibv_get_async_event(end.context, &event) != 0) return std::nullopt;
    ibv_ack_async_event(&event);
    return event.event_type;
  }

  Devices devices;
  End a{devices, 0};
  End b{devices, 1};
};

TEST_F(VanishingMemoryTest, AsTheSourceIsALocalProtectionError) {
  const Mortal source(a);
  source.pages.vanish(0, kPages);
  ASSERT_EQ(b.receive(1, b.piece(0, 4096)), 0);
  ASSERT_EQ(a.send(work(IBV_WR_SEND), source.piece(0, 64)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(VanishingMemoryTest, InTheMiddleOfTheSourceIsALocalProtectionError) {
  const Mortal source(a);
  source.pages.vanish(2, 1);
  ASSERT_EQ(a.send(work(IBV_WR_RDMA_WRITE, b.address(0), b.mr->rkey),
                   source.piece(100, source.size() - 200)),
            0);
  EXPECT_EQ(a.await().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(VanishingMemoryTest, SourcesThatMayBeReadAreSent) {
  const Mortal source(a);
  source.pages.protect(0, kPages, PROT_READ);
  ASSERT_EQ(
      a.send(work(IBV_WR_RDMA_WRITE, b.address(0), b.mr->rkey), source.piece(0, source.size())), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
}

TEST_F(VanishingMemoryTest, AsTheTargetOfAReadIsALocalProtectionError) {
  const Mortal target(a);
  target.pages.protect(1, 1, PROT_READ);
  ASSERT_EQ(a.send(work(IBV_WR_RDMA_READ, b.address(0), b.mr->rkey), target.piece(0, 8192)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(VanishingMemoryTest, AsTheResultOfAnAtomicIsALocalProtectionError) {
  const Mortal target(a);
  target.pages.vanish(0, kPages);
  ASSERT_EQ(a.send(work(IBV_WR_ATOMIC_FETCH_AND_ADD, b.address(0), b.mr->rkey), target.piece(0, 8)),
            0);
  EXPECT_EQ(a.await().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(VanishingMemoryTest, AsAReceiveIsBothSidesError) {
  const Mortal target(b);
  target.pages.vanish(0, kPages);
  ASSERT_EQ(b.receive(1, target.piece(0, 4096)), 0);
  ASSERT_EQ(a.send(work(IBV_WR_SEND), a.piece(0, 64)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(b.await().status, IBV_WC_LOC_PROT_ERR);
}

/// The peer's accesses, each of which ends its connection.
class RemoteAccessTest : public VanishingMemoryTest,
                         public ::testing::WithParamInterface<ibv_wr_opcode> {};

TEST_P(RemoteAccessTest, IsRefusedAndReported) {
  const Mortal target(b);
  target.pages.vanish(1, 1);
  const bool atomic = GetParam() >= IBV_WR_ATOMIC_CMP_AND_SWP;
  const std::size_t page = target.pages.page();
  const std::uint64_t at = target.address(atomic ? page : page - 100);
  ASSERT_EQ(a.send(work(GetParam(), at, target.mr->rkey), a.piece(0, atomic ? 8 : 200)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(event_of(b), IBV_EVENT_QP_ACCESS_ERR);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(b.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

INSTANTIATE_TEST_SUITE_P(All, RemoteAccessTest,
                         ::testing::Values(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                           IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD));

TEST_F(VanishingMemoryTest, ThatIsOnlyProtectedAgainstWritesCanBeRead) {
  const Mortal target(b);
  target.pages.protect(0, kPages, PROT_READ);
  ASSERT_EQ(a.send(work(IBV_WR_RDMA_READ, target.address(0), target.mr->rkey), a.piece(0, 8192)),
            0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  ASSERT_EQ(a.send(work(IBV_WR_RDMA_WRITE, target.address(0), target.mr->rkey), a.piece(0, 8)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VanishingMemoryTest, ThatTheFileNoLongerHasIsMissing) {
  const int fd = ::memfd_create("test", MFD_CLOEXEC);
  constexpr std::size_t kSize = 8192;
  ASSERT_EQ(::ftruncate(fd, kSize), 0);
  void* const mapped = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ibv_mr* const mr = ibv_reg_mr(b.pd, mapped, kSize, testing::kAllAccess);
  ASSERT_NE(mr, nullptr);
  const auto address = reinterpret_cast<std::uint64_t>(mapped);
  ASSERT_EQ(::ftruncate(fd, 0), 0);
  ASSERT_EQ(a.send(work(IBV_WR_RDMA_WRITE, address, mr->rkey), a.piece(0, 64)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(b.pd, mapped, kSize, testing::kAllAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ::munmap(mapped, kSize);
  ::close(fd);
}

TEST_F(VanishingMemoryTest, InlineDataThatAreNotThereAreRefusedByThePost) {
  const Pages pages(1);
  pages.vanish(0, 1);
  ibv_send_wr wr = work(IBV_WR_SEND);
  wr.send_flags |= IBV_SEND_INLINE;
  const ibv_sge nowhere{
      .addr = reinterpret_cast<std::uint64_t>(pages.bytes().data()), .length = 16, .lkey = 0};
  EXPECT_EQ(a.send(wr, nowhere), EFAULT);
  // The queue is as it was.
  ASSERT_EQ(b.receive(1, b.piece(0, 64)), 0);
  EXPECT_EQ(a.send(wr, a.piece(0, 16)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
}

TEST(VanishingDatagrams, EndInErrorsOnBothSides) {
  Devices devices;
  const End a(devices, 0, IBV_QPT_UD);
  const End b(devices, 1, IBV_QPT_UD);
  for (const End* end : {&a, &b}) testing::bring_up(*end);
  ibv_ah_attr to = testing::address_of(b);
  ibv_ah* const ah = ibv_create_ah(a.pd, &to);
  ASSERT_NE(ah, nullptr);
  ibv_send_wr wr = work(IBV_WR_SEND);
  wr.wr.ud = {.ah = ah, .remote_qpn = b.qp->qp_num, .remote_qkey = testing::kQkey};
  {
    const Mortal target(b);
    target.pages.vanish(0, kPages);
    ASSERT_EQ(b.receive(1, target.piece(0, 4096)), 0);
    ASSERT_EQ(a.send(wr, a.piece(0, 64)), 0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b.await().status, IBV_WC_LOC_PROT_ERR);
  }
  const Mortal source(a);
  source.pages.vanish(0, kPages);
  ASSERT_EQ(a.send(wr, source.piece(0, 64)), 0);
  EXPECT_EQ(a.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace
}  // namespace verbena::compat
