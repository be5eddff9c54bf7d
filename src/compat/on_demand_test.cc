// SPDX-License-Identifier: Apache-2.0
//
// Regions on demand, of a range and of everything, and advice about them.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/test_faults.h"
#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;
using verbena::testing::Pages;

constexpr unsigned kOnDemand = testing::kAllAccess | IBV_ACCESS_ON_DEMAND;
constexpr std::size_t kPages = 4;

class OnDemand : public ::testing::Test {
 protected:
  OnDemand() { testing::connect(a, b); }
  ~OnDemand() override {
    for (ibv_mr* mr : made) EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }

  ibv_mr* add(void* address, std::size_t length, unsigned access = kOnDemand,
              std::uint64_t iova = 0) {
    errno = 0;
    ibv_mr* const mr = ibv_reg_mr_iova2(
        b.pd, address, length, iova != 0 ? iova : reinterpret_cast<std::uint64_t>(address), access);
    if (mr != nullptr) made.push_back(mr);
    return mr;
  }
  ibv_mr* add_all(unsigned access = kOnDemand) { return add(nullptr, SIZE_MAX, access); }

  /// How a's request about 8 bytes of b's ends.
  ibv_wc_status ask(ibv_wr_opcode opcode, const ibv_mr* mr, std::uint64_t address) const {
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {.remote_addr = address, .compare_add = 3, .swap = 0, .rkey = mr->rkey};
    else
      wr.wr.rdma = {.remote_addr = address, .rkey = mr->rkey};
    EXPECT_EQ(a.send(wr, a.piece(0, 8)), 0);
    return a.await().status;
  }
  [[nodiscard]] std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(pages.bytes().data() + offset);
  }
  int advise(ibv_advise_mr_advice advice, const ibv_mr* mr, std::uint64_t at, std::uint32_t length,
             std::uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH) const {
    ibv_sge piece{.addr = at, .length = length, .lkey = mr->lkey};
    return ibv_advise_mr(b.pd, advice, flags, &piece, 1);
  }
  /// Whether a page is in memory.
  [[nodiscard]] bool resident(std::size_t page) const {
    unsigned char is = 0;
    EXPECT_EQ(::mincore(pages.bytes().data() + page * pages.page(), pages.page(), &is), 0);
    return (is & 1) != 0;
  }

  Devices devices;
  End a{devices, 0};
  End b{devices, 1};
  Pages pages{kPages};
  std::vector<ibv_mr*> made;
};

TEST_F(OnDemand, IsACapabilityOfEachTransport) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(a.context, nullptr, &attr), 0);
  const ibv_odp_caps& caps = attr.odp_caps;
  EXPECT_EQ(caps.general_caps, std::uint64_t{IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT});
  constexpr unsigned kAll = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                            IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC |
                            IBV_ODP_SUPPORT_SRQ_RECV;
  EXPECT_EQ(caps.per_transport_caps.rc_odp_caps, kAll);
  EXPECT_EQ(attr.xrc_odp_caps, kAll);
  EXPECT_EQ(caps.per_transport_caps.uc_odp_caps,
            unsigned{IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE});
  EXPECT_EQ(caps.per_transport_caps.ud_odp_caps,
            unsigned{IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV});
}

TEST_F(OnDemand, PagesComeWhenTheyAreUsed) {
  const ibv_mr* const mr = add(pages.bytes().data(), pages.bytes().size());
  ASSERT_NE(mr, nullptr);
  EXPECT_FALSE(resident(1));
  EXPECT_EQ(ask(IBV_WR_RDMA_WRITE, mr, address(4096)), IBV_WC_SUCCESS);
  EXPECT_TRUE(resident(1));
  EXPECT_FALSE(resident(2));
}

TEST_F(OnDemand, MemoryMayBeMissingAtFirstAndComeLater) {
  pages.vanish(0, kPages);
  const ibv_mr* const mr = add(pages.bytes().data(), pages.bytes().size());
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(add(pages.bytes().data(), pages.bytes().size(), testing::kAllAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
  pages.protect(0, kPages, PROT_READ | PROT_WRITE);
  EXPECT_EQ(ask(IBV_WR_ATOMIC_FETCH_AND_ADD, mr, address(0)), IBV_WC_SUCCESS);
  EXPECT_EQ(std::to_integer<int>(pages.bytes()[0]), 3);
  pages.vanish(0, 1);
  EXPECT_EQ(ask(IBV_WR_RDMA_READ, mr, address(0)), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(OnDemand, RegistrationsThatAreRefused) {
  EXPECT_EQ(add(pages.bytes().data(), 64, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // Where no page can be, a fault would have no address.
  EXPECT_EQ(add(reinterpret_cast<void*>(std::uintptr_t{1} << 62), 64), nullptr);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(add(nullptr, SIZE_MAX, kOnDemand | IBV_ACCESS_HUGETLB), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(add(nullptr, SIZE_MAX, kOnDemand, 4096), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(add(nullptr, SIZE_MAX, testing::kAllAccess), nullptr);
}

TEST_F(OnDemand, AnImplicitRegionIsAllOfTheMemory) {
  const ibv_mr* const mr = add_all();
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->length, SIZE_MAX);
  EXPECT_EQ(mr->addr, nullptr);
  const std::uint64_t sent = 77;
  std::memcpy(a.memory.data(), &sent, sizeof sent);
  EXPECT_EQ(ask(IBV_WR_RDMA_WRITE, mr, address(0)), IBV_WC_SUCCESS);
  EXPECT_EQ(std::to_integer<int>(pages.bytes()[0]), 77);
  const auto on_stack = reinterpret_cast<std::uint64_t>(&sent);
  EXPECT_EQ(ask(IBV_WR_RDMA_READ, mr, on_stack), IBV_WC_SUCCESS);
}

class NoMemory : public OnDemand, public ::testing::WithParamInterface<std::uint64_t> {};

TEST_P(NoMemory, OfAnImplicitRegionIsAnAccessError) {
  const ibv_mr* const mr = add_all();
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ask(IBV_WR_RDMA_WRITE, mr, GetParam()), IBV_WC_REM_ACCESS_ERR);
}

INSTANTIATE_TEST_SUITE_P(All, NoMemory,
                         ::testing::Values(0, 8, (std::uint64_t{1} << 47) - 4096,
                                           (std::uint64_t{1} << 47) - 8, std::uint64_t{1} << 47,
                                           (std::uint64_t{1} << 62), ~std::uint64_t{0} << 32,
                                           ~std::uint64_t{7}));

TEST_F(OnDemand, CanBeGivenUpAndTakenUp) {
  ibv_mr* const mr = add(pages.bytes().data(), pages.bytes().size());
  ASSERT_NE(mr, nullptr);
  pages.vanish(0, 1);
  const auto change = [&](ibv_mr* of, unsigned access) {
    return ibv_rereg_mr(of, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                        static_cast<int>(access));
  };
  EXPECT_EQ(change(mr, testing::kAllAccess), IBV_REREG_MR_ERR_INPUT);  // not there
  pages.protect(0, 1, PROT_READ);
  EXPECT_EQ(change(mr, testing::kAllAccess), IBV_REREG_MR_ERR_INPUT);  // not to be written
  EXPECT_EQ(change(mr, IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, mr, address(0), 8), ENOENT);
  EXPECT_EQ(change(mr, kOnDemand), 0);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, mr, address(0), 8), 0);
  ibv_mr* const all = add_all();
  EXPECT_EQ(change(all, testing::kAllAccess), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(change(all, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(ask(IBV_WR_RDMA_READ, all, address(0)), IBV_WC_SUCCESS);
}

TEST_F(OnDemand, AdviceBringsPagesIn) {
  const ibv_mr* const mr = add(pages.bytes().data(), pages.bytes().size());
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, mr, address(0), 8), 0);
  EXPECT_FALSE(resident(0));
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, mr, address(4090), 10), 0);
  EXPECT_TRUE(resident(0));
  EXPECT_TRUE(resident(1));
  EXPECT_FALSE(resident(2));
  pages.protect(2, 1, PROT_READ);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, mr, address(8192), 8, 0), 0);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, mr, address(8192), 8), EFAULT);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, add_all(), address(12288), 8), 0);
  EXPECT_TRUE(resident(3));
}

TEST_F(OnDemand, AdviceThatIsRefused) {
  const ibv_mr* const mr = add(pages.bytes().data(), pages.bytes().size());
  const auto advice = IBV_ADVISE_MR_ADVICE_PREFETCH;
  EXPECT_EQ(advise(testing::wrong_value<ibv_advise_mr_advice>(3), mr, address(0), 8), EOPNOTSUPP);
  EXPECT_EQ(advise(advice, mr, address(0), 8, 2), EINVAL);
  EXPECT_EQ(ibv_advise_mr(b.pd, advice, 0, nullptr, 0), EINVAL);
  EXPECT_EQ(advise(advice, mr, address(0), kPages * 4096 + 1), EFAULT);
  EXPECT_EQ(advise(advice, mr, address(0) - 1, 8), EFAULT);
  ibv_mr none = *mr;
  none.lkey ^= 0xFF;
  EXPECT_EQ(advise(advice, &none, address(0), 8), EFAULT);
  pages.vanish(3, 1);
  EXPECT_EQ(advise(advice, mr, address(8192), 8192), EFAULT);
  EXPECT_EQ(advise(advice, b.mr, b.address(0), 8), ENOENT);  // not on demand

  const ibv_mr* const readable =
      add(pages.bytes().data(), 4096, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, readable, address(0), 8), EPERM);
  ibv_pd* const other = ibv_alloc_pd(b.context);
  ibv_sge piece{.addr = address(0), .length = 8, .lkey = mr->lkey};
  EXPECT_EQ(ibv_advise_mr(other, advice, 0, &piece, 1), EPERM);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);

  ibv_mw* const mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_mr* const bindable = add(pages.bytes().data(), 4096, kOnDemand | IBV_ACCESS_MW_BIND);
  wr.bind_mw = {.mw = mw,
                .rkey = mw->rkey,
                .bind_info = {.mr = bindable,
                              .addr = address(0),
                              .length = 64,
                              .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(b.qp, &wr, &bad), 0);
  ASSERT_EQ(b.await().status, IBV_WC_SUCCESS);
  piece.lkey = mw->rkey;
  EXPECT_EQ(ibv_advise_mr(b.pd, advice, 0, &piece, 1), EINVAL);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

}  // namespace
}  // namespace verbena::compat
