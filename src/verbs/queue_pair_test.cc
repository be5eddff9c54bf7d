// SPDX-License-Identifier: Apache-2.0
#include "verbena/queue_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::fill;
using ::testing::HasSubstr;
using testing::must;
using testing::Pair;

mr_slice first(const End& end, std::size_t length, std::size_t offset = 0) {
  return must(end.memory.slice(offset, length));
}

TEST(QueuePair, SendsIntoAReceive) {
  const Pair<rc> pair;
  fill(pair.left.memory.bytes(), 'a');
  must(pair.right_qp.post_recv(first(pair.right, 100), 7));
  must(pair.left_qp.send_with_immediate(first(pair.left, 50), 0xcafe, {.wr_id = 5}));
  const work_completion sent = pair.left.next();
  EXPECT_TRUE(sent.ok());
  EXPECT_EQ(sent.wr_id(), 5);
  EXPECT_EQ(sent.opcode(), IBV_WC_SEND);
  const work_completion received = pair.right.next();
  EXPECT_TRUE(received.ok());
  EXPECT_TRUE(received.is_receive());
  EXPECT_EQ(received.wr_id(), 7);
  EXPECT_EQ(received.byte_len(), 50);
  EXPECT_EQ(received.immediate(), 0xcafeU);
  EXPECT_EQ(received.qp_num(), pair.right_qp.number());
  EXPECT_EQ(pair.right.memory.bytes()[49], std::byte{'a'});
  EXPECT_EQ(pair.right.memory.bytes()[50], std::byte{0});
}

TEST(QueuePair, WritesReadsAndAddsInAPeersMemory) {
  const Pair<rc> pair;
  const remote_region there = must(pair.right.memory.remote());
  fill(pair.left.memory.bytes().first(64), 'w');
  must(pair.left_qp.write(first(pair.left, 64), there));
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_RDMA_WRITE);
  testing::settle(pair.right.pd);
  EXPECT_EQ(pair.right.memory.bytes()[63], std::byte{'w'});

  must(pair.left_qp.read(first(pair.left, 64, 128), there));
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_RDMA_READ);
  EXPECT_EQ(pair.left.memory.bytes()[128 + 63], std::byte{'w'});

  const std::uint64_t before = 40;
  std::memcpy(pair.right.memory.bytes().data() + 256, &before, sizeof before);
  testing::settle(pair.right.pd);
  must(pair.left_qp.fetch_add(first(pair.left, 8, 512), must(there.at(256)), 2));
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_FETCH_ADD);
  must(pair.left_qp.compare_swap(first(pair.left, 8, 520), must(there.at(256)), 42, 50));
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_COMP_SWAP);
  std::array<std::uint64_t, 2> seen{};
  std::memcpy(seen.data(), pair.left.memory.bytes().data() + 512, sizeof seen);
  EXPECT_THAT(seen, ::testing::ElementsAre(40, 42));
  testing::settle(pair.right.pd);
  std::uint64_t after = 0;
  std::memcpy(&after, pair.right.memory.bytes().data() + 256, sizeof after);
  EXPECT_EQ(after, 50);
}

// Nobody asks for the key of what was copied when it was posted.
TEST(QueuePair, WhatIsSmallIsInlined) {
  const Pair<rc> pair({.max_inline_data = 64});
  const std::uint32_t limit = pair.left_qp.caps().max_inline_data;
  ASSERT_GE(limit, 64);
  fill(pair.left.memory.bytes(), 'i');
  const auto without_a_key = [&](std::uint32_t size) {
    return mr_slice(first(pair.left, size).address(), size, ~pair.left.memory.lkey());
  };
  must(pair.right_qp.post_recv(first(pair.right, 2048)));
  must(pair.left_qp.send(without_a_key(limit)));
  EXPECT_TRUE(pair.left.next().ok());
  EXPECT_EQ(pair.right.next().byte_len(), limit);
  EXPECT_EQ(pair.right.memory.bytes()[limit - 1], std::byte{'i'});
  must(pair.left_qp.send(without_a_key(limit + 1)));
  EXPECT_EQ(pair.left.next().status(), IBV_WC_LOC_PROT_ERR);
}

TEST(QueuePair, AllCompleteWhereAllAreSignalled) {
  const Pair<rc> pair;
  for (const bool all : {true, false}) {
    auto qp = must(pair.left.pd.create_qp<rc>(
        {.send_cq = pair.left.cq, .recv_cq = pair.left.cq, .signal_all = all}));
    auto peer =
        must(pair.right.pd.create_qp<rc>({.send_cq = pair.right.cq, .recv_cq = pair.right.cq}));
    const auto row = must(pair.left.ctx.routable_gid());
    const qp_endpoint here = must(qp.endpoint(row.of, row.index));
    const qp_endpoint there = must(peer.endpoint(row.of, row.index));
    must(qp.connect(here, there));
    must(peer.connect(there, here));
    const remote_region to = must(pair.right.memory.remote());
    must(qp.write(first(pair.left, 8), to, {.wr_id = 1, .flags = send_flags::none}));
    must(qp.write(first(pair.left, 8), to, {.wr_id = 2}));
    if (all) {
      EXPECT_EQ(pair.left.next().wr_id(), 1);
    }
    EXPECT_EQ(pair.left.next().wr_id(), 2);
  }
}

TEST(QueuePair, AnUnreliableOneWrites) {
  const Pair<uc> pair;
  fill(pair.left.memory.bytes(), 'u');
  must(pair.right_qp.post_recv(first(pair.right, 64, 1024)));
  const remote_region to = must(pair.right.memory.remote());
  must(pair.left_qp.write(first(pair.left, 100), to));
  must(pair.left_qp.write_with_immediate(first(pair.left, 8), must(to.at(512)), 7));
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_RDMA_WRITE);
  EXPECT_EQ(pair.left.next().opcode(), IBV_WC_RDMA_WRITE);
  EXPECT_EQ(pair.right.next().immediate(), 7U);
  EXPECT_EQ(pair.right.memory.bytes()[99], std::byte{'u'});
  EXPECT_EQ(pair.right.memory.bytes()[100], std::byte{0});
  EXPECT_EQ(pair.right.memory.bytes()[519], std::byte{'u'});
}

TEST(QueuePair, EachEndpointBeginsSomewhere) {
  const Pair<rc> pair;
  const auto row = must(pair.left.ctx.routable_gid());
  std::set<std::uint32_t> first;
  for (int i = 0; i < 4; ++i) {
    const auto qp =
        must(pair.left.pd.create_qp<rc>({.send_cq = pair.left.cq, .recv_cq = pair.left.cq}));
    first.insert(must(qp.endpoint(row.of, row.index)).first.value());
  }
  EXPECT_GT(first.size(), 1);
}

TEST(QueuePair, AListIsPostedAtOnce) {
  const Pair<uc> pair;
  recv_list<4> receives;
  send_list<uc, 4> sends;
  std::array<mr_slice, 4> to;
  std::array<mr_slice, 4> from;
  for (std::size_t i = 0; i < 4; ++i) {
    to.at(i) = first(pair.right, 16, 16 * i);
    from.at(i) = first(pair.left, 16, 16 * i);
    EXPECT_TRUE(receives.add(recv_request({&to.at(i), 1}, i)));
    EXPECT_TRUE(sends.add(send_request<uc>::send({&from.at(i), 1}, {.wr_id = i})));
  }
  EXPECT_FALSE(receives.add(recv_request({}, 4)));
  EXPECT_TRUE(pair.right_qp.post(receives));
  EXPECT_TRUE(pair.left_qp.post(sends));
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(pair.right.next().wr_id(), i);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(pair.left.next().wr_id(), i);
}

TEST(QueuePair, AFullQueueWouldBlockAndSaysHowFarAListCame) {
  const Pair<rc> pair({.max_send_wr = 1, .max_recv_wr = 2});
  const std::uint32_t most = pair.left_qp.caps().max_recv_wr;
  const mr_slice slice = first(pair.left, 8);
  for (std::uint32_t i = 0; i + 1 < most; ++i) must(pair.left_qp.post_recv(slice));
  recv_list<3> list;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(list.add(recv_request({&slice, 1})));
  const auto posted = pair.left_qp.post(list);
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.error().posted, 1);
  EXPECT_TRUE(posted.error().error.would_block()) << posted.error().error.message();
  const auto one = pair.left_qp.post_recv(slice);
  ASSERT_FALSE(one);
  EXPECT_TRUE(one.error().would_block());
}

TEST(QueuePair, DatagramsNeedAnAddress) {
  const End left("vrb0");
  const End right("vrb1");
  auto sender = must(left.pd.create_qp<ud>({.send_cq = left.cq, .recv_cq = left.cq}));
  auto receiver = must(right.pd.create_qp<ud>({.send_cq = right.cq, .recv_cq = right.cq}));
  constexpr qkey kKey{0x1234};
  must(sender.activate(port{1}, kKey));
  must(receiver.activate(port{1}, kKey));
  const auto to = must(right.ctx.routable_gid());
  const auto from = must(left.ctx.routable_gid());
  const address_handle ah = must(left.pd.create_ah({.to = to.id, .source = from.index}));
  must(receiver.post_recv(must(right.memory.slice(0, 1024))));
  fill(left.memory.bytes(), 'd');
  must(sender.send({.ah = ah, .to = receiver.number(), .key = kKey},
                   must(left.memory.slice(0, 10))));
  EXPECT_TRUE(left.next().ok());
  const work_completion got = right.next();
  EXPECT_EQ(got.byte_len(), 40 + 10);
  EXPECT_EQ(got.src_qp(), sender.number());
  EXPECT_EQ(right.memory.bytes()[40 + 9], std::byte{'d'});
}

TEST(QueuePair, ARefusedTransitionNamesTheBits) {
  const End end("vrb0");
  auto qp = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
  const auto missing = qp.modify({.state = qp_state::init, .of = port{1}});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message(),
              HasSubstr("from RESET to INIT: missing: IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX"));
  const auto superfluous = qp.modify({.state = qp_state::err, .key = qkey{1}});
  ASSERT_FALSE(superfluous);
  EXPECT_THAT(superfluous.error().message(), HasSubstr("must not be there: IBV_QP_QKEY"));
  const auto none = qp.modify({.state = qp_state::rts});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error(), std::errc::invalid_argument);
  EXPECT_EQ(qp.state(), qp_state::reset);
}

TEST(QueuePair, AFailedCompletionSaysWhy) {
  const Pair<rc> pair;
  const remote_region wrong(0x1000, 64, 0x9999);
  must(pair.left_qp.write(first(pair.left, 8), wrong, {.wr_id = 77}));
  const work_completion failed = pair.left.next();
  const auto result = failed.result();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error(), std::errc::permission_denied);
  EXPECT_THAT(result.error().message(), HasSubstr("remote access error"));
  EXPECT_THAT(result.error().message(), HasSubstr("key, bounds or rights"));
  ASSERT_NE(result.error().completion(), nullptr);
  EXPECT_EQ(result.error().completion()->wr_id, 77);
  EXPECT_EQ(result.error().completion()->qp_num, pair.left_qp.number().value());
  EXPECT_EQ(pair.left_qp.state(), qp_state::err);
}

TEST(QueuePair, ObjectsMayBeDestroyedInAnyOrder) {
  std::optional<queue_pair<rc>> qp;
  std::optional<memory_region> mr;
  {
    const End end("vrb0");
    qp = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
    mr = must(end.pd.alloc_mr(64, access::local_write));
  }
  EXPECT_EQ(qp->state(), qp_state::reset);
  EXPECT_EQ(mr->bytes().size(), 64);
  qp.reset();
  mr.reset();
}

TEST(QueuePair, AParentIsBusyWhileChildrenAreThere) {
  End end("vrb0");
  {
    const auto qp = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
    const auto closed = end.cq.close();
    ASSERT_FALSE(closed);
    EXPECT_EQ(closed.error(), std::errc::device_or_resource_busy);
  }
  must(end.cq.close());
  EXPECT_EQ(end.cq.close().error(), std::errc::bad_file_descriptor);
}

TEST(QueuePair, AHandleThatWasMovedFromReports) {
  End end("vrb0");
  auto qp = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
  const mr_slice slice = must(end.memory.whole());
  const auto taken = std::move(qp);
  // NOLINTBEGIN(bugprone-use-after-move): what it then says is what is tested
  EXPECT_FALSE(qp);
  EXPECT_EQ(qp.send(slice).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(qp.post_recv(slice).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(qp.to_error().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(qp.number(), qp_number{0});
  const auto cq = std::move(end.cq);
  wc_batch<1> room;
  EXPECT_EQ(end.cq.poll(room).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(end.cq.request_notification().error(), std::errc::bad_file_descriptor);
  const auto mr = std::move(end.memory);
  EXPECT_EQ(end.memory.whole().error(), std::errc::bad_file_descriptor);
  EXPECT_TRUE(end.memory.bytes().empty());
  // NOLINTEND(bugprone-use-after-move)
}

TEST(QueuePair, OneThatCHasMadeIsWorkedWith) {
  const End end("vrb0");
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = end.cq.native();
  attributes.cap = {.max_send_wr = 4,
                    .max_recv_wr = 4,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  ibv_qp* const made = ibv_create_qp(end.pd.native(), &attributes);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(queue_pair<uc>::adopt(made, {}, ownership::borrowed).error(),
            std::errc::invalid_argument);
  EXPECT_EQ(queue_pair<rc>::adopt(nullptr, {}, ownership::borrowed).error(),
            std::errc::invalid_argument);
  {
    const auto borrowed = must(queue_pair<rc>::adopt(made, {}, ownership::borrowed));
    EXPECT_EQ(borrowed.state(), qp_state::reset);
  }
  auto owned = must(queue_pair<rc>::adopt(made, {}, ownership::owned));
  EXPECT_EQ(owned.number(), qp_number(made->qp_num)) << "its borrower has left it";
  must(owned.close());
}

}  // namespace
}  // namespace verbena::verbs
