// SPDX-License-Identifier: Apache-2.0
//
// Contexts that are imported from one another, and handles for each other's objects.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

class Import : public ::testing::Test {
 protected:
  Import() : imported(ibv_import_device(::dup(owner.context->cmd_fd))) {
    EXPECT_NE(imported, nullptr);
  }
  ~Import() override {
    if (imported != nullptr) {
      EXPECT_EQ(ibv_close_device(imported), 0);
    }
  }

  Devices devices;
  End owner{devices, 0};
  End peer{devices, 1};
  ibv_context* imported;
};

TEST_F(Import, OfWhatIsNoDeviceIsRefused) {
  errno = 0;
  EXPECT_EQ(ibv_import_device(-1), nullptr);
  EXPECT_NE(errno, 0);
  EXPECT_EQ(ibv_import_pd(imported, 0x7FFF'FFFF), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_import_mr(owner.pd, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_import_dm(imported, 77), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Import, ARegionWorksUnderBothHandles) {
  ibv_pd* const pd = ibv_import_pd(imported, owner.pd->handle);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(pd->context, imported);
  ibv_mr* const mr = ibv_import_mr(pd, owner.mr->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, owner.mr->length);
  EXPECT_EQ(mr->rkey, owner.mr->rkey);
  EXPECT_EQ(mr->lkey, owner.mr->lkey);

  ibv_pd* const other = ibv_alloc_pd(imported);
  EXPECT_EQ(ibv_import_mr(other, owner.mr->handle), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);

  // A queue pair of the imported context, which the peer writes to.
  ibv_cq* const cq = ibv_create_cq(imported, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const own = std::exchange(owner.qp, ibv_create_qp(pd, &init));
  ASSERT_NE(owner.qp, nullptr);
  testing::connect(owner, peer);
  peer.memory[0] = std::byte{42};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {.remote_addr = owner.address(100), .rkey = mr->rkey};
  ASSERT_EQ(peer.send(wr, peer.piece(0, 8)), 0);
  EXPECT_EQ(peer.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(owner.memory[100], std::byte{42});
  EXPECT_EQ(ibv_dealloc_pd(owner.pd), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(std::exchange(owner.qp, own)), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
}

TEST_F(Import, WhoeverDestroysTheOthersOnlyUnimport) {
  ibv_pd* const pd = ibv_alloc_pd(owner.context);
  ibv_mr* const mr = ibv_reg_mr(pd, owner.memory.data(), 64, testing::kAllAccess);
  ibv_pd* const second_pd = ibv_import_pd(imported, pd->handle);
  ibv_mr* const second_mr = ibv_import_mr(second_pd, mr->handle);
  ASSERT_NE(second_mr, nullptr);
  EXPECT_EQ(ibv_rereg_mr(second_mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  EXPECT_EQ(ibv_dereg_mr(second_mr), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), EINVAL);
  ibv_unimport_mr(mr);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_dealloc_pd(second_pd), EINVAL);
  ibv_unimport_pd(second_pd);
}

/// A handle whose domain was deallocated through another one is good for nothing but to be given
/// back.
TEST_F(Import, NothingIsMadeInADomainThatIsGone) {
  ibv_pd* const pd = ibv_alloc_pd(owner.context);
  ibv_pd* const gone = ibv_import_pd(imported, pd->handle);
  ASSERT_NE(gone, nullptr);
  ASSERT_EQ(ibv_dealloc_pd(pd), 0);
  ibv_cq* const cq = ibv_create_cq(imported, 4, nullptr, nullptr, 0);
  ibv_alloc_dm_attr of_device{.length = 64, .log_align_req = 0, .comp_mask = 0};
  ibv_dm* const dm = ibv_alloc_dm(imported, &of_device);
  ibv_mr* const moving = ibv_reg_mr(owner.pd, owner.memory.data(), 64, 0);
  const auto refusal = [](auto make) {
    errno = 0;
    EXPECT_EQ(make(), nullptr);
    return errno;
  };
  ibv_ah_attr to = testing::address_of(peer);
  ibv_srq_init_attr srq{};
  srq.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
  ibv_qp_init_attr qp{};
  qp.send_cq = qp.recv_cq = cq;
  qp.qp_type = IBV_QPT_RC;
  ibv_wq_init_attr wq{};
  wq.wq_type = IBV_WQT_RQ;
  wq.pd = gone;
  wq.cq = cq;
  ibv_parent_domain_init_attr parent{};
  parent.pd = gone;
  ibv_cq_init_attr_ex of_parent{};
  of_parent.cqe = 1;
  of_parent.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  of_parent.parent_domain = gone;
  void* const memory = owner.memory.data();
  EXPECT_EQ(refusal([&] { return ibv_reg_mr(gone, memory, 64, 0); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_alloc_null_mr(gone); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_reg_dm_mr(gone, dm, 0, 64, IBV_ACCESS_ZERO_BASED); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_import_mr(gone, owner.mr->handle); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_alloc_mw(gone, IBV_MW_TYPE_1); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_create_ah(gone, &to); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_create_srq(gone, &srq); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_create_qp(gone, &qp); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_create_wq(imported, &wq); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_alloc_parent_domain(imported, &parent); }), EINVAL);
  EXPECT_EQ(refusal([&] { return ibv_create_cq_ex(imported, &of_parent); }), EINVAL);
  ibv_sge piece = owner.piece(0, 8);
  EXPECT_EQ(ibv_advise_mr(gone, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1), EINVAL);
  ibv_mr* const own = ibv_import_mr(ibv_import_pd(imported, owner.pd->handle), moving->handle);
  EXPECT_EQ(ibv_rereg_mr(own, IBV_REREG_MR_CHANGE_PD, gone, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(gone), EINVAL);
  ibv_unimport_pd(gone);
  ibv_pd* const imported_pd = own->pd;
  ibv_unimport_mr(own);
  ibv_unimport_pd(imported_pd);
  EXPECT_EQ(ibv_dereg_mr(moving), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Import, DeviceMemoryIsTheSame) {
  ibv_alloc_dm_attr attr{.length = 64, .log_align_req = 0, .comp_mask = 0};
  ibv_dm* const dm = ibv_alloc_dm(owner.context, &attr);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(dm->comp_mask, std::uint32_t{IBV_DM_MASK_HANDLE});
  ibv_dm* const second = ibv_import_dm(imported, dm->handle);
  ASSERT_NE(second, nullptr);
  const std::uint64_t word = 5;
  std::uint64_t read = 0;
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 8, &word, sizeof word), 0);
  EXPECT_EQ(ibv_memcpy_from_dm(&read, second, 8, sizeof read), 0);
  EXPECT_EQ(read, word);
  ibv_unimport_dm(second);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(Import, TheDeviceStaysOpenUntilTheLastContextIsClosed) {
  ibv_pd* const pd = ibv_import_pd(imported, owner.pd->handle);
  ibv_mr* const mr = ibv_import_mr(pd, owner.mr->handle);
  testing::connect(owner, peer);
  EXPECT_EQ(ibv_close_device(owner.context), 0);
  owner.context = nullptr;
  EXPECT_EQ(devices.host.nics.size(), 2U);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {.remote_addr = owner.address(100), .rkey = mr->rkey};
  ASSERT_EQ(peer.send(wr, peer.piece(0, 8)), 0);
  EXPECT_EQ(peer.await().status, IBV_WC_SUCCESS);
  const int fd = imported->cmd_fd;
  EXPECT_EQ(ibv_close_device(std::exchange(imported, nullptr)), 0);
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(devices.host.nics.size(), 1U);
  for (ibv_mr* left : {mr, owner.mr}) delete &Mr::of(left);
  for (ibv_pd* left : {pd, owner.pd}) delete &Pd::of(left);
  delete &Qp::of(owner.qp);
  delete &Cq::of(owner.cq);
  delete &Channel::of(owner.channel);
}

/// What a context leaves behind is destroyed with the last one, whatever it is.
TEST_F(Import, TheLastContextDestroysWhatTheOthersLeftBehind) {
  ibv_xrcd_init_attr open{
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
  ibv_xrcd* const domain = ibv_open_xrcd(imported, &open);
  ibv_pd* const pd = ibv_alloc_pd(imported);
  ibv_cq* const cq = ibv_create_cq(imported, 4, nullptr, nullptr, 0);
  ibv_wq_init_attr init{};
  init.wq_type = IBV_WQT_RQ;
  init.max_wr = init.max_sge = 1;
  init.pd = pd;
  init.cq = cq;
  ibv_wq* wq = ibv_create_wq(imported, &init);
  ibv_rwq_ind_table_init_attr of{.log_ind_tbl_size = 0, .ind_tbl = &wq, .comp_mask = 0};
  ibv_rwq_ind_table* const table = ibv_create_rwq_ind_table(imported, &of);
  ASSERT_NE(table, nullptr);
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(ibv_close_device(std::exchange(imported, nullptr)), 0);
  static int warnings = 0;
  warnings = 0;
  set_log_sink([](LogLevel, std::string_view) { ++warnings; });
  owner.leave_behind();
  set_log_sink(nullptr);
  EXPECT_EQ(warnings, 0);
  EXPECT_EQ(devices.host.nics.size(), 1U);
  delete &Xrcd::of(domain);
  delete &IndTable::of(table);
  delete &Wq::of(wq);
  delete &Cq::of(cq);
  delete &Pd::of(pd);
}

TEST_F(Import, ADescriptorThatIsAnothersByNowStaysOpen) {
  const int fd = imported->cmd_fd;
  const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::dup3(other, fd, O_CLOEXEC), fd);
  EXPECT_EQ(ibv_close_device(std::exchange(imported, nullptr)), 0);
  EXPECT_NE(::fcntl(fd, F_GETFD), -1);
  ::close(fd);
  ::close(other);
}

TEST_F(Import, InAnotherProcessIsACleanError) {
  const pid_t child = ::fork();
  if (child == 0) {
    errno = 0;
    const bool inherited = ibv_import_device(::dup(imported->cmd_fd)) == nullptr && errno == EIO;
    ::_exit(inherited ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);

  auto foreign = make_command_file();
  ASSERT_TRUE(foreign);
  errno = 0;
  EXPECT_EQ(ibv_import_device(foreign->get()), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace verbena::compat
