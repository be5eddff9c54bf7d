// SPDX-License-Identifier: Apache-2.0
#include "verbena/shared_receive_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::fill;
using testing::must;

/// Two queue pairs of one end take from one queue, two of the other send.
class SharedReceives : public ::testing::Test {
 protected:
  struct Joined {
    queue_pair<rc> sender;
    queue_pair<rc> sharer;
  };
  [[nodiscard]] Joined join() const {
    Joined made{
        must(client.pd.create_qp<rc>({.send_cq = client.cq, .recv_cq = client.cq})),
        must(server.pd.create_qp<rc>({.send_cq = server.cq, .recv_cq = server.cq, .srq = &*srq}))};
    const auto row = must(server.ctx.routable_gid());
    const qp_endpoint here = must(made.sharer.endpoint(row.of, row.index));
    const qp_endpoint there = must(made.sender.endpoint(row.of, row.index));
    must(made.sharer.connect(here, there));
    must(made.sender.connect(there, here));
    return made;
  }
  [[nodiscard]] mr_slice room(std::size_t which) const {
    return must(server.memory.slice(64 * which, 64));
  }
  void send(const queue_pair<rc>& by) const {
    must(by.send(must(client.memory.slice(0, 16))));
    EXPECT_TRUE(client.next().ok());
  }

  End server{"vrb0"};
  End client{"vrb1"};
  std::optional<shared_receive_queue> srq = must(server.pd.create_srq({.max_wr = 16}));
};

TEST_F(SharedReceives, AreTakenInOrderByWhoeverGetsAMessage) {
  const Joined one = join();
  const Joined other = join();
  EXPECT_EQ(one.sharer.caps().max_recv_wr, 0);
  for (std::size_t i = 0; i < 4; ++i) must(srq->post_recv(room(i), i));
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Joined& by = i % 2 == 0 ? one : other;
    fill(client.memory.bytes().first(16), static_cast<char>('a' + i));
    send(by.sender);
    const work_completion got = server.next();
    EXPECT_EQ(got.wr_id(), i);
    EXPECT_EQ(got.qp_num(), by.sharer.number());
    EXPECT_EQ(server.memory.bytes()[64 * i + 15], static_cast<std::byte>('a' + i));
  }
  EXPECT_FALSE(one.sharer.post_recv(room(0)));  // it has none of its own
}

TEST_F(SharedReceives, AnEventTellsThatFewAreLeft) {
  const Joined one = join();
  for (std::size_t i = 0; i < 4; ++i) must(srq->post_recv(room(i), i));
  must(srq->arm_limit(4));
  EXPECT_EQ(must(srq->query()).srq_limit, 4);
  send(one.sender);
  EXPECT_TRUE(server.next().ok());
  const async_event event = must(server.ctx.get_async_event());
  EXPECT_EQ(event.type, IBV_EVENT_SRQ_LIMIT_REACHED);
  const auto* const about = std::get_if<async_event::of_srq>(&event.about);
  ASSERT_NE(about, nullptr);
  EXPECT_EQ(about->srq, srq->native());
  EXPECT_EQ(must(srq->query()).srq_limit, 0);  // once
}

TEST_F(SharedReceives, AFullOneWouldBlockAndSaysHowFarAListCame) {
  const std::uint32_t most = must(srq->query()).max_wr;
  for (std::uint32_t i = 0; i + 1 < most; ++i) must(srq->post_recv(room(0), i));
  const mr_slice slice = room(1);
  recv_list<3> list;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(list.add(recv_request({&slice, 1})));
  const auto posted = srq->post(list);
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.error().posted, 1);
  EXPECT_TRUE(posted.error().error.would_block()) << posted.error().error.message();
  const auto one = srq->post_recv(slice);
  ASSERT_FALSE(one);
  EXPECT_TRUE(one.error().would_block());
}

TEST_F(SharedReceives, AreResized) {
  must(srq->resize(64));
  EXPECT_GE(must(srq->query()).max_wr, 64);
  for (std::uint32_t i = 0; i < 64; ++i) must(srq->post_recv(room(0), i));
  const auto smaller = srq->resize(16);
  ASSERT_FALSE(smaller);
  EXPECT_EQ(smaller.error(), std::errc::invalid_argument);
}

TEST_F(SharedReceives, OutliveTheirHandleInTheirQueuePairs) {
  const Joined one = join();
  must(srq->post_recv(room(0), 9));
  EXPECT_EQ(srq->close().error(), std::errc::device_or_resource_busy);
  srq.reset();
  send(one.sender);
  EXPECT_EQ(server.next().wr_id(), 9);
}

TEST_F(SharedReceives, ThatWereMovedFromReport) {
  const auto taken = std::move(*srq);
  // What it then says is what is tested.
  EXPECT_EQ(srq->post_recv(room(0)).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(srq->query().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(srq->arm_limit(1).error(), std::errc::bad_file_descriptor);
  const auto made =
      server.pd.create_qp<rc>({.send_cq = server.cq, .recv_cq = server.cq, .srq = &*srq});
  EXPECT_EQ(made.error(), std::errc::bad_file_descriptor);
}

}  // namespace
}  // namespace verbena::verbs
