// SPDX-License-Identifier: Apache-2.0
// Shared receive queues that match tags: ibv_create_srq_ex(3), ibv_post_srq_ops(3).
#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/tm_types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "compat/test_pair.h"

namespace verbena::compat {
namespace {

using testing::Devices;
using testing::End;

constexpr std::uint64_t kTag = 0x0102030405060708;
constexpr std::uint64_t kAll = ~std::uint64_t{0};

/// What a completion is, field by field.
struct Told {
  std::uint64_t id = 0;
  ibv_wc_status status{};
  ibv_wc_opcode opcode{};
  unsigned int flags = 0;
  std::uint32_t length = 0;
  ibv_wc_tm_info info{};
};

/// `sender` sends to the queue pair of `receiver`, whose receives have tags.
class TagMatching : public ::testing::Test {
 protected:
  TagMatching() {
    EXPECT_EQ(ibv_destroy_qp(receiver.qp), 0);
    srq = create(attributes());
    EXPECT_NE(srq, nullptr);
    receiver.qp = share(0);
    EXPECT_NE(receiver.qp, nullptr);
    testing::connect(sender, receiver);
  }
  ~TagMatching() override {
    EXPECT_EQ(ibv_destroy_qp(receiver.qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = receiver.cq;
    init.qp_type = IBV_QPT_RC;
    receiver.qp = ibv_create_qp(receiver.pd, &init);
  }

  [[nodiscard]] ibv_cq_ex* extended_cq() const {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_TM_INFO;
    return ibv_create_cq_ex(receiver.context, &attr);
  }
  [[nodiscard]] ibv_srq_init_attr_ex attributes() const {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
    attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    attr.srq_type = IBV_SRQT_TM;
    attr.pd = receiver.pd;
    attr.cq = ibv_cq_ex_to_cq(cq);
    attr.tm_cap = {.max_num_tags = 4, .max_ops = 10};
    return attr;
  }
  [[nodiscard]] ibv_srq* create(ibv_srq_init_attr_ex attr) const {
    return ibv_create_srq_ex(receiver.context, &attr);
  }
  [[nodiscard]] ibv_qp* share(std::uint32_t max_send_wr, ibv_qp_type type = IBV_QPT_RC,
                              ibv_pd* pd = nullptr) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = receiver.cq;
    init.srq = srq;
    init.qp_type = type;
    init.cap.max_send_wr = max_send_wr;
    ibv_qp* const qp = ibv_create_qp(pd != nullptr ? pd : receiver.pd, &init);
    EXPECT_EQ(init.cap.max_send_wr, qp == nullptr ? max_send_wr : 0U);
    return qp;
  }

  [[nodiscard]] ibv_ops_wr operation(ibv_ops_wr_opcode opcode, std::uint64_t id) const {
    ibv_ops_wr wr{};
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.flags = IBV_OPS_SIGNALED;
    return wr;
  }
  [[nodiscard]] int post(ibv_ops_wr& wr) const {
    ibv_ops_wr* bad = nullptr;
    const int error = ibv_post_srq_ops(srq, &wr, &bad);
    EXPECT_EQ(bad, error == 0 ? nullptr : &wr);
    return error;
  }
  /// Adds a receive and takes the completion of that; returns its handle.
  std::uint32_t add(std::uint64_t id, ibv_sge piece, std::uint64_t tag = kTag,
                    std::uint64_t mask = kAll) {
    ibv_ops_wr wr = operation(IBV_WR_TAG_ADD, 1000 + id);
    wr.tm.add = {.recv_wr_id = id, .sg_list = &piece, .num_sge = 1, .tag = tag, .mask = mask};
    EXPECT_EQ(post(wr), 0);
    const Told told = await();
    EXPECT_EQ(told.id, 1000 + id);
    EXPECT_EQ(told.opcode, IBV_WC_TM_ADD);
    EXPECT_EQ(told.info.tag, 0U);
    flags_of_add = told.flags;
    return wr.tm.handle;
  }
  /// Tells how many unexpected messages are dealt with; the flags of the completion.
  unsigned int sync(std::uint32_t count) {
    ibv_ops_wr wr = operation(IBV_WR_TAG_SYNC, 500);
    wr.flags |= IBV_OPS_TM_SYNC;
    wr.tm.unexpected_cnt = count;
    EXPECT_EQ(post(wr), 0);
    const Told told = await();
    EXPECT_EQ(told.opcode, IBV_WC_TM_SYNC);
    return told.flags;
  }
  void post_plain(std::uint64_t id, ibv_sge piece) const {
    ibv_recv_wr wr{.wr_id = id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
  void send(std::uint8_t opcode, std::uint32_t length, std::uint64_t tag = kTag) {
    std::memset(sender.memory.data(), 0x5A, length);
    const ibv_tmh header{
        .opcode = opcode, .reserved = {}, .app_ctx = htobe32(9), .tag = htobe64(tag)};
    std::memcpy(sender.memory.data(), &header, sizeof header);
    send_as_it_is(length);
  }
  void send_as_it_is(std::uint32_t length) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(sender.send(wr, sender.piece(0, length)), 0);
  }
  void send_rendezvous(std::size_t from, std::uint32_t length, std::uint32_t rkey) {
    const ibv_tmh header{
        .opcode = IBV_TMH_RNDV, .reserved = {}, .app_ctx = htobe32(9), .tag = htobe64(kTag)};
    const ibv_rvh where{
        .va = htobe64(sender.address(from)), .rkey = htobe32(rkey), .len = htobe32(length)};
    std::memcpy(sender.memory.data(), &header, sizeof header);
    std::memcpy(sender.memory.data() + sizeof header, &where, sizeof where);
    send_as_it_is(sizeof header + sizeof where);
  }
  [[nodiscard]] bool quiet() {
    devices.host.settle(100);
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(cq, &attr) != 0) return true;
    ibv_end_poll(cq);
    return false;
  }
  Told await() {
    ibv_poll_cq_attr attr{};
    for (int i = 0; i < 1000; ++i) {
      if (ibv_start_poll(cq, &attr) == 0) {
        Told told{.id = cq->wr_id,
                  .status = cq->status,
                  .opcode = ibv_wc_read_opcode(cq),
                  .flags = ibv_wc_read_wc_flags(cq),
                  .length = ibv_wc_read_byte_len(cq)};
        ibv_wc_read_tm_info(cq, &told.info);
        ibv_end_poll(cq);
        return told;
      }
      devices.host.step();
    }
    ADD_FAILURE() << "no completion";
    return {};
  }

  Devices devices;
  End sender{devices, 0};
  End receiver{devices, 1};
  ibv_cq_ex* cq = extended_cq();
  ibv_srq* srq = nullptr;
  unsigned int flags_of_add = 0;
};

TEST_F(TagMatching, TheDeviceSaysWhatItCan) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(receiver.context, nullptr, &attr), 0);
  EXPECT_EQ(attr.tm_caps.flags, static_cast<std::uint32_t>(IBV_TM_CAP_RC));
  ibv_srq_init_attr_ex wanted = attributes();
  wanted.tm_cap = {.max_num_tags = attr.tm_caps.max_num_tags, .max_ops = attr.tm_caps.max_ops};
  ibv_srq* const largest = create(wanted);
  ASSERT_NE(largest, nullptr);
  ibv_ops_wr wr = operation(IBV_WR_TAG_ADD, 1);
  wr.flags = 0;
  const std::vector<ibv_sge> pieces(attr.tm_caps.max_sge + 1, receiver.piece(0, 10));
  wr.tm.add = {.recv_wr_id = 1,
               .sg_list = const_cast<ibv_sge*>(pieces.data()),
               .num_sge = static_cast<int>(attr.tm_caps.max_sge),
               .tag = 0,
               .mask = 0};
  ibv_ops_wr* bad = nullptr;
  for (std::uint32_t i = 0; i < attr.tm_caps.max_num_tags; ++i)
    ASSERT_EQ(ibv_post_srq_ops(largest, &wr, &bad), 0);
  EXPECT_EQ(ibv_post_srq_ops(largest, &wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &wr);
  ++wr.tm.add.num_sge;
  EXPECT_EQ(ibv_post_srq_ops(largest, &wr, &bad), EINVAL);
  EXPECT_EQ(ibv_destroy_srq(largest), 0);
  ++wanted.tm_cap.max_num_tags;
  EXPECT_EQ(create(wanted), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(TagMatching, AMessageGoesWhereItsTagSays) {
  add(1, receiver.piece(0, 100), kTag + 1);
  add(2, receiver.piece(1000, 100), kTag & 0xFF, 0xFF);
  EXPECT_EQ(flags_of_add, 0U);
  send(IBV_TMH_EAGER, 116);
  const Told told = await();
  EXPECT_EQ(told.id, 2U);
  EXPECT_EQ(told.status, IBV_WC_SUCCESS);
  EXPECT_EQ(told.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(told.flags, static_cast<unsigned>(IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID));
  EXPECT_EQ(told.length, 100U);
  EXPECT_EQ(told.info.tag, kTag);
  EXPECT_EQ(told.info.priv, 9U);
  EXPECT_EQ(std::memcmp(receiver.memory.data() + 1000, sender.memory.data() + 16, 100), 0);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
}

TEST_F(TagMatching, AnUnexpectedMessageStopsNewReceivesUntilTheCountsAgree) {
  post_plain(5, receiver.piece(0, 1000));
  send(IBV_TMH_EAGER, 116);
  const Told unexpected = await();
  EXPECT_EQ(unexpected.id, 5U);
  EXPECT_EQ(unexpected.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(unexpected.flags, 0U);
  EXPECT_EQ(unexpected.length, 116U);
  EXPECT_EQ(std::memcmp(receiver.memory.data(), sender.memory.data(), 116), 0);

  add(1, receiver.piece(2000, 100));
  EXPECT_EQ(flags_of_add, static_cast<unsigned>(IBV_WC_TM_SYNC_REQ));
  post_plain(6, receiver.piece(0, 1000));
  send(IBV_TMH_EAGER, 50);
  EXPECT_EQ(await().id, 6U);  // though there is a receive for it
  EXPECT_EQ(sync(1), static_cast<unsigned>(IBV_WC_TM_SYNC_REQ));
  EXPECT_EQ(sync(2), 0U);
  send(IBV_TMH_EAGER, 50);
  EXPECT_EQ(await().id, 1U);
}

TEST_F(TagMatching, AnAddCanTellTheCountToo) {
  post_plain(5, receiver.piece(0, 1000));
  send(IBV_TMH_EAGER, 116);
  EXPECT_EQ(await().id, 5U);
  ibv_sge piece = receiver.piece(2000, 100);
  ibv_ops_wr wr = operation(IBV_WR_TAG_ADD, 7);
  wr.tm.unexpected_cnt = 1;  // which is not looked at
  wr.tm.add = {.recv_wr_id = 8, .sg_list = &piece, .num_sge = 1, .tag = kTag, .mask = kAll};
  ASSERT_EQ(post(wr), 0);
  EXPECT_EQ(await().flags, static_cast<unsigned>(IBV_WC_TM_SYNC_REQ));
  wr.flags |= IBV_OPS_TM_SYNC;
  ASSERT_EQ(post(wr), 0);
  EXPECT_EQ(await().flags, 0U);
  send(IBV_TMH_EAGER, 50);
  EXPECT_EQ(await().id, 8U);
}

TEST_F(TagMatching, WhatHasNoTagNeedsNoSync) {
  add(1, receiver.piece(2000, 100));
  post_plain(5, receiver.piece(0, 1000));
  send(IBV_TMH_NO_TAG, 64);
  const Told told = await();
  EXPECT_EQ(told.id, 5U);
  EXPECT_EQ(told.opcode, IBV_WC_TM_NO_TAG);
  EXPECT_EQ(told.flags, 0U);
  add(2, receiver.piece(2000, 100));
  EXPECT_EQ(flags_of_add, 0U);
}

TEST_F(TagMatching, AReceiveCanBeDeletedUnlessItIsGone) {
  add(1, receiver.piece(0, 100));
  ibv_ops_wr wr = operation(IBV_WR_TAG_DEL, 70);
  wr.tm.handle = add(2, receiver.piece(1000, 100));
  ASSERT_EQ(post(wr), 0);
  Told told = await();
  EXPECT_EQ(told.id, 70U);
  EXPECT_EQ(told.opcode, IBV_WC_TM_DEL);
  EXPECT_EQ(told.status, IBV_WC_SUCCESS);
  ASSERT_EQ(post(wr), 0);
  EXPECT_EQ(await().status, IBV_WC_TM_ERR);
  wr.tm.handle = add(3, receiver.piece(1000, 100), kTag + 1);
  send(IBV_TMH_EAGER, 16, kTag + 1);
  EXPECT_EQ(await().id, 3U);
  ASSERT_EQ(post(wr), 0);
  EXPECT_EQ(await().status, IBV_WC_TM_ERR);
  send(IBV_TMH_EAGER, 16);
  EXPECT_EQ(await().id, 1U);
}

TEST_F(TagMatching, WithoutTheFlagAnOperationIsNotTold) {
  ibv_sge piece = receiver.piece(0, 100);
  ibv_ops_wr wr = operation(IBV_WR_TAG_ADD, 7);
  wr.flags = 0;
  wr.tm.add = {.recv_wr_id = 8, .sg_list = &piece, .num_sge = 1, .tag = kTag, .mask = kAll};
  ASSERT_EQ(post(wr), 0);
  EXPECT_TRUE(quiet());
  send(IBV_TMH_EAGER, 50);
  EXPECT_EQ(await().id, 8U);
}

TEST_F(TagMatching, ARendezvousIsFetchedAndItsSenderTold) {
  for (std::uint32_t i = 0; i < 20000; ++i) sender.memory[8192 + i] = static_cast<std::byte>(i * 7);
  ASSERT_EQ(sender.receive(3, sender.piece(4096, 64)), 0);
  add(1, receiver.piece(100, 30000));
  send_rendezvous(8192, 20000, sender.mr->rkey);
  const Told match = await();
  EXPECT_EQ(match.id, 1U);
  EXPECT_EQ(match.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(match.flags, static_cast<unsigned>(IBV_WC_TM_MATCH));
  EXPECT_EQ(match.info.tag, kTag);
  const Told end = await();
  EXPECT_EQ(end.id, 1U);
  EXPECT_EQ(end.opcode, IBV_WC_TM_RECV);
  EXPECT_EQ(end.flags, static_cast<unsigned>(IBV_WC_TM_DATA_VALID));
  EXPECT_EQ(end.length, 20000U);
  EXPECT_EQ(std::memcmp(receiver.memory.data() + 100, sender.memory.data() + 8192, 20000), 0);
  ibv_wc sent = sender.await();
  if (sent.opcode == IBV_WC_SEND) sent = sender.await();
  EXPECT_EQ(sent.wr_id, 3U);
  EXPECT_EQ(sent.opcode, IBV_WC_RECV);
  EXPECT_EQ(sender.memory[4096], std::byte{IBV_TMH_FIN});
  EXPECT_TRUE(quiet());  // the READ and the message of the end are not the program's
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(receiver.cq, 1, &wc), 0);
}

TEST_F(TagMatching, AReadThatFailsIsToldForItsReceive) {
  add(1, receiver.piece(100, 30000));
  send_rendezvous(8192, 20000, sender.mr->rkey ^ 0x100);
  EXPECT_EQ(await().flags, static_cast<unsigned>(IBV_WC_TM_MATCH));
  const Told end = await();
  EXPECT_EQ(end.id, 1U);
  EXPECT_EQ(end.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(quiet());
}

TEST_F(TagMatching, AReceiveThatIsTooShortGetsTheHeaders) {
  add(1, receiver.piece(100, 64));
  send_rendezvous(8192, 20000, sender.mr->rkey);
  const Told told = await();
  EXPECT_EQ(told.id, 1U);
  EXPECT_EQ(told.status, IBV_WC_TM_RNDV_INCOMPLETE);
  EXPECT_EQ(told.length, 32U);
  EXPECT_EQ(std::memcmp(receiver.memory.data() + 100, sender.memory.data(), 32), 0);
}

TEST_F(TagMatching, ReceivesAreOfTheQueuesProtectionDomain) {
  ibv_pd* const other = ibv_alloc_pd(receiver.context);
  ibv_mr* const mr =
      ibv_reg_mr(other, receiver.memory.data(), receiver.memory.size(), testing::kAllAccess);
  EXPECT_EQ(ibv_destroy_qp(receiver.qp), 0);
  receiver.qp = share(0, IBV_QPT_RC, other);
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(sender.qp, &reset, IBV_QP_STATE), 0);
  testing::connect(sender, receiver);
  ASSERT_EQ(sender.receive(3, sender.piece(4096, 64)), 0);
  ASSERT_EQ(sender.receive(4, sender.piece(4096, 64)), 0);
  add(1, receiver.piece(0, 30000));
  send_rendezvous(8192, 2000, sender.mr->rkey);
  EXPECT_EQ(await().flags, static_cast<unsigned>(IBV_WC_TM_MATCH));
  EXPECT_EQ(await().status, IBV_WC_SUCCESS);
  ibv_sge piece = receiver.piece(0, 30000);
  piece.lkey = mr->lkey;
  add(2, piece);
  send_rendezvous(8192, 2000, sender.mr->rkey);
  EXPECT_EQ(await().flags, static_cast<unsigned>(IBV_WC_TM_MATCH));
  EXPECT_EQ(await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_destroy_qp(receiver.qp), 0);
  receiver.qp = share(0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(TagMatching, AQueueWithoutTagsHasNoOperations) {
  ibv_srq_init_attr_ex plain = attributes();
  plain.srq_type = IBV_SRQT_BASIC;
  ibv_srq* const basic = create(plain);
  ASSERT_NE(basic, nullptr);
  ibv_ops_wr wr = operation(IBV_WR_TAG_SYNC, 1);
  ibv_ops_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_ops(basic, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(ibv_destroy_srq(basic), 0);
}

TEST_F(TagMatching, WrongValuesAreRefused) {
  const auto refused = [&](auto change) {
    ibv_srq_init_attr_ex attr = attributes();
    change(attr);
    errno = 0;
    EXPECT_EQ(create(attr), nullptr);
    return errno;
  };
  EXPECT_EQ(refused([](auto& attr) { attr.cq = nullptr; }), EINVAL);
  EXPECT_EQ(refused([](auto& attr) { attr.tm_cap.max_num_tags = 0; }), EINVAL);
  EXPECT_EQ(refused([](auto& attr) { attr.tm_cap.max_ops = ~0U; }), EINVAL);
  EXPECT_EQ(refused([](auto& attr) {
              attr.comp_mask &= ~static_cast<std::uint32_t>(IBV_SRQ_INIT_ATTR_TM);
            }),
            EINVAL);
  EXPECT_EQ(refused([](auto& attr) { attr.comp_mask |= IBV_SRQ_INIT_ATTR_RESERVED; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& attr) { attr.srq_type = testing::wrong_value<ibv_srq_type>(3); }),
            EOPNOTSUPP);

  EXPECT_EQ(share(1), nullptr);  // what is sent is the rendezvous'
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(share(0, IBV_QPT_UC), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(receiver.send({}, receiver.piece(0, 8)), EINVAL);
  ibv_send_wr empty{};
  empty.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(receiver.qp, &empty, &bad), ENOMEM);

  ibv_ops_wr wr = operation(testing::wrong_value<ibv_ops_wr_opcode>(3), 1);
  EXPECT_EQ(post(wr), EINVAL);
  wr = operation(IBV_WR_TAG_SYNC, 1);
  wr.flags = 4;
  EXPECT_EQ(post(wr), EINVAL);
  wr = operation(IBV_WR_TAG_ADD, 1);
  wr.tm.add.num_sge = -1;
  EXPECT_EQ(post(wr), EINVAL);
  EXPECT_TRUE(quiet());
}

TEST_F(TagMatching, IsInUseWhileItsQueuePairsAndItselfAre) {
  EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), EBUSY);
}

TEST_F(TagMatching, FailsWithItsCompletionQueue) {
  ASSERT_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 1), 0);
  ibv_ops_wr wr = operation(IBV_WR_TAG_SYNC, 1);
  ASSERT_EQ(post(wr), 0);
  ASSERT_EQ(post(wr), 0);
  std::vector<int> kinds;
  for (int i = 0; i < 3; ++i) {
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(receiver.context, &event), 0);
    kinds.push_back(event.event_type);
    ibv_ack_async_event(&event);
  }
  std::ranges::sort(kinds);
  EXPECT_EQ(kinds,
            (std::vector<int>{IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR, IBV_EVENT_QP_LAST_WQE_REACHED}));
}

TEST_F(TagMatching, WhatADestroyedQueuePairLeftIsStillTold) {
  add(1, receiver.piece(0, 100));
  send(IBV_TMH_EAGER, 50);
  EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_destroy_qp(receiver.qp), 0);
  EXPECT_EQ(await().id, 1U);
  receiver.qp = share(0);
}

}  // namespace
}  // namespace verbena::compat
