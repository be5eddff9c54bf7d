// SPDX-License-Identifier: Apache-2.0
// A SEND that leaves before it is in the send queue.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "nic/test_end.h"

namespace verbena::nic {
namespace {

class ShortSend : public ::testing::Test {
 protected:
  ShortSend() {
    host.near = true;
    a.emplace(host, "127.0.0.1", testing::EndOptions{.max_wr = 4});
    b.emplace(host, "127.0.0.2");
    testing::connect(*a, *b);
  }
  [[nodiscard]] bool send_short(std::uint64_t id) {
    SendPosting posting = a->nic->post_sends(a->qp);
    return a->nic->send_short(a->qp, posting,
                              {.id = id, .piece = a->piece(0, 8), .signaled = true});
  }
  std::vector<std::uint64_t> sent() {
    std::vector<std::uint64_t> ids;
    for (const engine::Completion& each : a->poll(a->send_cq)) {
      EXPECT_EQ(each.status, engine::Status::kSuccess);
      ids.push_back(each.id);
    }
    return ids;
  }
  /// With the acknowledgements.
  std::size_t received() {
    std::size_t count = 0;
    while (const std::size_t some = b->poll(b->receive_cq).size()) count += some;
    return count;
  }

  testing::Network network;
  testing::StepHost host{network};
  std::optional<testing::End> a;
  std::optional<testing::End> b;
};

TEST_F(ShortSend, IsPostedWhenItHasLeft) {
  ASSERT_TRUE(a->qp->sends_short());
  for (std::uint64_t id = 0; id < 9; ++id) {  // more than the queue holds
    ASSERT_TRUE(b->receive(id, {b->piece(0, 8)}));
    ASSERT_TRUE(send_short(id));
    EXPECT_EQ(received(), 1U);
    EXPECT_EQ(sent(), std::vector{id});
  }
}

TEST_F(ShortSend, IsOneOfManyInTheirOrder) {
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_TRUE(b->receive(id, {b->piece(0, 8)}));
  ASSERT_TRUE(send_short(1));
  ASSERT_TRUE(a->send({.id = 2}, {a->piece(0, 8)}));
  ASSERT_TRUE(send_short(3));
  EXPECT_EQ(received(), 3U);
  EXPECT_EQ(sent(), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(ShortSend, IsNotOneWhereTheQueueIsFull) {
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_TRUE(send_short(id));
  EXPECT_FALSE(send_short(4));
  const auto before = network.sent();
  EXPECT_FALSE(a->send({.id = 5}, {a->piece(0, 8)}));
  EXPECT_EQ(network.sent(), before);
}

// Then the posting goes on as if nothing had been tried.
TEST_F(ShortSend, IsNotOneWhereTheLinkDoesNotTakeIt) {
  ASSERT_TRUE(b->receive(1, {b->piece(0, 8)}));
  host.links.front()->room = 0;
  {
    SendPosting posting = a->nic->post_sends(a->qp);
    EXPECT_FALSE(a->nic->send_short(a->qp, posting, {.id = 1, .piece = a->piece(0, 8)}));
    const auto request = posting.begin();
    ASSERT_TRUE(request);
    (*request)->id = 2;
    (*request)->signaled = true;
    posting.make_pieces(1).front() = a->piece(0, 8);
    ASSERT_TRUE(posting.end());
    host.links.front()->room = 8;
    ASSERT_TRUE(a->nic->send(a->qp, posting));
  }
  EXPECT_EQ(received(), 1U);
  EXPECT_EQ(sent(), std::vector<std::uint64_t>{2});
}

TEST_F(ShortSend, IsNotOneWhileThePortIsDown) {
  PortState down = a->nic->port();
  down.up = false;
  a->nic->set_port(down);
  EXPECT_FALSE(send_short(1));
}

TEST_F(ShortSend, IsNotOneInReset) {
  ASSERT_TRUE(a->to_state(engine::QpState::kReset));
  EXPECT_FALSE(send_short(1));
}

TEST_F(ShortSend, IsNotOneBehindWhatWasBegun) {
  SendPosting posting = a->nic->post_sends(a->qp);
  ASSERT_TRUE(posting.begin());
  posting.make_pieces(1).front() = a->piece(0, 8);
  ASSERT_TRUE(posting.end());
  EXPECT_FALSE(a->nic->send_short(a->qp, posting, {.id = 1, .piece = a->piece(0, 8)}));
}

// A connection keeps its way when only its path's other attributes change.
TEST_F(ShortSend, IsOneBehindAChangeOfThePath) {
  ASSERT_TRUE(a->to_state(engine::QpState::kSqd));
  engine::QpAttributes attributes;
  attributes.state = engine::QpState::kSqd;
  attributes.path.destination = b->nic->config().address;
  attributes.path.hop_limit = 9;
  ASSERT_TRUE(a->nic->modify_qp(a->qp, attributes, engine::kMaskState | engine::kMaskPath));
  ASSERT_TRUE(a->to_state(engine::QpState::kRts));
  EXPECT_TRUE(a->qp->sends_short());
  EXPECT_TRUE(send_short(1));
}

TEST_F(ShortSend, IsFlushedInErrorAsAnyIs) {
  ASSERT_TRUE(send_short(1));
  ASSERT_TRUE(a->to_state(engine::QpState::kErr));
  EXPECT_FALSE(send_short(2));
  const auto completions = a->poll(a->send_cq);
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].id, 1U);
  EXPECT_EQ(completions[0].status, engine::Status::kFlushError);
}

using FarShortSend = testing::ConnectedEnds;

TEST_F(FarShortSend, IsNoneOverANetwork) {
  EXPECT_FALSE(a.qp->sends_short());
  SendPosting posting = a.nic->post_sends(a.qp);
  EXPECT_FALSE(a.nic->send_short(a.qp, posting, {.id = 1, .piece = a.piece(0, 8)}));
}

}  // namespace
}  // namespace verbena::nic
