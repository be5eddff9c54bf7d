// SPDX-License-Identifier: Apache-2.0
//
// Parent domains: another name of a protection domain, with a thread domain and an allocator.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <set>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

/// What a program's allocator did.
struct Allocator {
  enum class Answer { kOwn, kDefault, kNothing };

  static void* allocate(ibv_pd* pd, void* context, std::size_t size, std::size_t alignment,
                        std::uint64_t /*resource_type*/) {
    auto& self = *static_cast<Allocator*>(context);
    self.told = pd;
    ++self.calls;
    EXPECT_EQ(size % alignment, 0U);
    if (self.answer == Answer::kNothing) return nullptr;
    if (self.answer == Answer::kDefault) return IBV_ALLOCATOR_USE_DEFAULT;
    // The NIC's locks are not held: its verbs can be called.
    ibv_pd* const another = ibv_alloc_pd(pd->context);
    EXPECT_EQ(ibv_dealloc_pd(another), 0);
    void* const memory = std::aligned_alloc(alignment, size);
    self.live.insert(memory);
    return memory;
  }
  static void release(ibv_pd* pd, void* context, void* memory, std::uint64_t /*resource_type*/) {
    auto& self = *static_cast<Allocator*>(context);
    EXPECT_EQ(self.told, pd);
    EXPECT_EQ(self.live.erase(memory), 1U);
    ibv_pd* const another = ibv_alloc_pd(pd->context);
    EXPECT_EQ(ibv_dealloc_pd(another), 0);
    std::free(memory);
  }

  Answer answer = Answer::kOwn;
  ibv_pd* told = nullptr;
  int calls = 0;
  std::set<void*> live{};
};

class ParentDomain : public ::testing::Test {
 protected:
  ibv_pd* make(ibv_parent_domain_init_attr attr) const {
    errno = 0;
    return ibv_alloc_parent_domain(end.context, &attr);
  }
  [[nodiscard]] ibv_parent_domain_init_attr with_allocator() {
    ibv_parent_domain_init_attr attr{};
    attr.pd = end.pd;
    attr.comp_mask =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = &Allocator::allocate;
    attr.free = &Allocator::release;
    attr.pd_context = &allocator;
    return attr;
  }
  ibv_qp* make_qp(ibv_pd* pd, ibv_cq* cq) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {.max_send_wr = 8,
                .max_recv_wr = 8,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 32};
    init.qp_type = IBV_QPT_RC;
    errno = 0;
    return ibv_create_qp(pd, &init);
  }
  ibv_cq* make_cq(ibv_pd* pd) const {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = pd;
    errno = 0;
    ibv_cq_ex* const cq = ibv_create_cq_ex(end.context, &attr);
    return cq == nullptr ? nullptr : ibv_cq_ex_to_cq(cq);
  }
  static ibv_srq* make_srq(ibv_pd* pd) {
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 8, .max_sge = 2, .srq_limit = 0};
    return ibv_create_srq(pd, &attr);
  }

  Devices devices;
  End end{devices, 0};
  End peer{devices, 1};
  Allocator allocator;
};

TEST_F(ParentDomain, WithWrongAttributesIsRefused) {
  ibv_td_init_attr init{};
  ibv_td* const foreign = ibv_alloc_td(peer.context, &init);
  ASSERT_NE(foreign, nullptr);
  const auto refuses = [&](auto change) {
    ibv_parent_domain_init_attr attr = with_allocator();
    change(attr);
    EXPECT_EQ(make(attr), nullptr);
    return errno;
  };
  EXPECT_EQ(refuses([](auto& attr) { attr.pd = nullptr; }), EINVAL);
  EXPECT_EQ(refuses([&](auto& attr) { attr.pd = peer.pd; }), EINVAL);
  EXPECT_EQ(refuses([&](auto& attr) { attr.td = foreign; }), EINVAL);
  EXPECT_EQ(refuses([](auto& attr) { attr.comp_mask |= 4; }), EINVAL);
  EXPECT_EQ(refuses([](auto& attr) { attr.alloc = nullptr; }), EINVAL);
  EXPECT_EQ(refuses([](auto& attr) { attr.free = nullptr; }), EINVAL);
  EXPECT_EQ(ibv_dealloc_td(foreign), 0);
  init.comp_mask = 1;
  EXPECT_EQ(ibv_alloc_td(end.context, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(make_cq(end.pd), nullptr);  // no parent domain
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ParentDomain, KeepsWhatItIsMadeOfAndIsKeptByWhatIsMadeWithIt) {
  ibv_td_init_attr init{};
  ibv_td* const td = ibv_alloc_td(end.context, &init);
  ibv_pd* const base = ibv_alloc_pd(end.context);
  ibv_parent_domain_init_attr attr{};
  attr.pd = base;
  attr.td = td;
  ibv_pd* const parent = make(attr);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(parent->handle, base->handle);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(base), EBUSY);
  attr.pd = parent;
  attr.td = nullptr;
  ibv_pd* const second = make(attr);
  ASSERT_NE(second, nullptr);

  ibv_mr* const mr = ibv_reg_mr(parent, end.memory.data(), 64, 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_cq* const cq = make_cq(parent);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
  EXPECT_EQ(ibv_dealloc_pd(base), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(second), 0);
  EXPECT_EQ(ibv_dealloc_pd(base), 0);
}

TEST_F(ParentDomain, SharesItsKeysWithTheProtectionDomain) {
  testing::connect(end, peer);
  ibv_parent_domain_init_attr attr{};
  attr.pd = end.pd;
  ibv_pd* const parent = make(attr);
  // The queue pair is of the protection domain, the region and the window are of the parent domain.
  ibv_mr* const mr =
      ibv_reg_mr(parent, end.memory.data(), 64, testing::kAllAccess | IBV_ACCESS_MW_BIND);
  ibv_mw* const mw = ibv_alloc_mw(parent, IBV_MW_TYPE_1);
  ibv_mw_bind bind{.wr_id = 1,
                   .send_flags = IBV_SEND_SIGNALED,
                   .bind_info = {.mr = mr,
                                 .addr = end.address(0),
                                 .length = 64,
                                 .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
  ASSERT_EQ(ibv_bind_mw(end.qp, mw, &bind), 0);
  EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
  for (const std::uint32_t key : {mr->rkey, mw->rkey}) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {.remote_addr = end.address(0), .rkey = key};
    ASSERT_EQ(peer.send(wr, peer.piece(0, 8)), 0);
    EXPECT_EQ(peer.await().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
}

TEST_F(ParentDomain, QueuesLieInTheProgramsMemory) {
  ibv_pd* const parent = make(with_allocator());
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(allocator.calls, 0);
  ibv_cq* const cq = make_cq(parent);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(allocator.told, parent);
  const std::size_t of_cq = allocator.live.size();
  EXPECT_GT(of_cq, 0U);
  EXPECT_EQ(ibv_resize_cq(cq, 64), 0);
  EXPECT_EQ(allocator.live.size(), of_cq);
  ibv_srq* const srq = make_srq(parent);
  const std::size_t of_srq = allocator.live.size();
  EXPECT_GT(of_srq, of_cq);
  ibv_srq_attr more{.max_wr = 32, .max_sge = 0, .srq_limit = 0};
  EXPECT_EQ(ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR), 0);
  EXPECT_EQ(allocator.live.size(), of_srq);
  ibv_qp* const qp = make_qp(parent, cq);
  ASSERT_NE(qp, nullptr);
  EXPECT_GT(allocator.live.size(), of_srq);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_TRUE(allocator.live.empty());
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
}

TEST_F(ParentDomain, AllocatorsMayLeaveItToUsOrFail) {
  ibv_pd* const parent = make(with_allocator());
  allocator.answer = Allocator::Answer::kDefault;
  ibv_qp* const qp = make_qp(parent, end.cq);
  ASSERT_NE(qp, nullptr);
  EXPECT_GT(allocator.calls, 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  allocator.answer = Allocator::Answer::kNothing;
  EXPECT_EQ(make_qp(parent, end.cq), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(make_cq(parent), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(make_srq(parent), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
}

TEST_F(ParentDomain, AllocatorsAreNotCalledWhenTheDeviceIsClosed) {
  ibv_context* const context = ibv_open_device(devices.list[0]);
  ibv_parent_domain_init_attr attr = with_allocator();
  ibv_pd* const base = ibv_alloc_pd(context);
  attr.pd = base;
  ibv_pd* const parent = ibv_alloc_parent_domain(context, &attr);
  ibv_cq* const cq = ibv_create_cq(context, 1, nullptr, nullptr, 0);
  ibv_qp* const qp = make_qp(parent, cq);
  ASSERT_NE(qp, nullptr);
  const std::size_t live = allocator.live.size();
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(allocator.live.size(), live);
  for (void* memory : allocator.live) std::free(memory);
  delete &Qp::of(qp);
  delete &Cq::of(cq);
  delete &Pd::of(parent);
  delete &Pd::of(base);
}

}  // namespace
}  // namespace verbena::compat
