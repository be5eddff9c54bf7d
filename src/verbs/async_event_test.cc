// SPDX-License-Identifier: Apache-2.0
#include "verbena/async_event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::must;

/// A queue pair whose receives are shared, and a peer that sends to it.
struct SharedEnd {
  SharedEnd()
      : srq(must(right.pd.create_srq({.max_wr = 8}))),
        left_qp(must(left.pd.create_qp<rc>({.send_cq = left.cq, .recv_cq = left.cq}))),
        right_qp(
            must(right.pd.create_qp<rc>({.send_cq = right.cq, .recv_cq = right.cq, .srq = &srq}))) {
    const auto row = must(left.ctx.routable_gid());
    const qp_endpoint here = must(left_qp.endpoint(row.of, row.index));
    const qp_endpoint there = must(right_qp.endpoint(row.of, row.index));
    must(left_qp.connect(here, there));
    must(right_qp.connect(there, here));
  }
  /// Readable within some seconds.
  bool wait() const {
    pollfd one{.fd = right.ctx.async_fd(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 20000) == 1;
  }

  End left{"vrb0"};
  End right{"vrb1"};
  shared_receive_queue srq;
  queue_pair<rc> left_qp;
  queue_pair<rc> right_qp;
};

TEST(AsyncEvents, NoneWouldBlock) {
  const auto ctx = must(context::open("vrb0"));
  must(ctx.set_async_blocking(false));
  const auto none = ctx.get_async_event();
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().would_block());
  EXPECT_STREQ(none.error().verb(), "ibv_get_async_event");
  EXPECT_GE(ctx.async_fd(), 0);
}

TEST(AsyncEvents, ALimitOfASharedQueueIsToldOnce) {
  const SharedEnd ends;
  must(ends.right.ctx.set_async_blocking(false));
  const mr_slice slice = must(ends.right.memory.slice(0, 64));
  must(ends.srq.post_recv(slice));
  must(ends.srq.post_recv(slice));
  must(ends.srq.arm_limit(2));
  EXPECT_EQ(must(ends.srq.query()).srq_limit, 2);
  must(ends.left_qp.send(must(ends.left.memory.slice(0, 8))));
  EXPECT_TRUE(ends.right.next().ok());
  ASSERT_TRUE(ends.wait());
  const async_event event = must(ends.right.ctx.get_async_event());
  EXPECT_EQ(event.type, IBV_EVENT_SRQ_LIMIT_REACHED);
  ASSERT_TRUE(std::holds_alternative<async_event::of_srq>(event.about));
  EXPECT_EQ(std::get<async_event::of_srq>(event.about).srq, ends.srq.native());
  EXPECT_EQ(event.name(), ibv_event_type_str(IBV_EVENT_SRQ_LIMIT_REACHED));
  EXPECT_TRUE(ends.right.ctx.get_async_event().error().would_block());
  EXPECT_EQ(must(ends.srq.query()).srq_limit, 0);
}

TEST(AsyncEvents, AQueuePairThatEndsTellsItsNumberAndMayBeDestroyedAfterwards) {
  SharedEnd ends;
  must(ends.right_qp.to_error());
  ASSERT_TRUE(ends.wait());
  const async_event event = must(ends.right.ctx.get_async_event());
  EXPECT_EQ(event.type, IBV_EVENT_QP_LAST_WQE_REACHED);
  ASSERT_TRUE(std::holds_alternative<async_event::of_qp>(event.about));
  EXPECT_EQ(std::get<async_event::of_qp>(event.about).number, ends.right_qp.number());
  must(ends.right_qp.close());  // which would wait for an event that is not acknowledged
}

TEST(AsyncEvents, AnEventThatNobodyTookDoesNotKeepAnObject) {
  SharedEnd ends;
  must(ends.right_qp.to_error());
  ASSERT_TRUE(ends.wait());
  must(ends.right_qp.close());
}

TEST(AsyncEvents, ABlockingCallWaitsForOne) {
  SharedEnd ends;
  std::thread ender([&] { must(ends.right_qp.to_error()); });
  EXPECT_EQ(must(ends.right.ctx.get_async_event()).type, IBV_EVENT_QP_LAST_WQE_REACHED);
  ender.join();
}

}  // namespace
}  // namespace verbena::verbs
