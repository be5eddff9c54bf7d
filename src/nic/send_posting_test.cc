// SPDX-License-Identifier: Apache-2.0
#include "nic/send_posting.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using engine::QpState;

class Posting : public testing::ConnectedEnds {
 protected:
  void write(SendPosting& posting, std::uint64_t id) const {
    const auto request = posting.begin();
    ASSERT_TRUE(request);
    (*request)->id = id;
    (*request)->opcode = engine::SendOpcode::kWrite;
    (*request)->signaled = true;
    (*request)->remote_address = b.base();
    (*request)->rkey = b.region->key;
    posting.make_pieces(1).front() = a.piece(0, 64);
    ASSERT_TRUE(posting.end());
  }
  /// The requests that complete from now on.
  std::vector<std::uint64_t> completed() {
    a.nic->ring_sends(a.qp);
    std::vector<std::uint64_t> ids;
    for (int i = 0; i < 20; ++i) {
      host.step();
      for (const engine::Completion& completion : a.poll(a.send_cq)) {
        EXPECT_EQ(completion.status, engine::Status::kSuccess);
        ids.push_back(completion.id);
      }
    }
    return ids;
  }
};

TEST_F(Posting, NothingIsPostedBeforeItIsPublished) {
  SendPosting posting = a.nic->post_sends(a.qp);
  write(posting, 1);
  write(posting, 2);
  EXPECT_TRUE(completed().empty());
  ASSERT_TRUE(posting.publish());
  EXPECT_EQ(completed(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(Posting, WhatWasNotPublishedIsForgotten) {
  {
    SendPosting posting = a.nic->post_sends(a.qp);
    write(posting, 1);
  }
  SendPosting posting = a.nic->post_sends(a.qp);
  write(posting, 2);
  ASSERT_TRUE(posting.publish());
  EXPECT_EQ(completed(), (std::vector<std::uint64_t>{2}));
}

TEST_F(Posting, ARequestIsAsNewWhereAnotherWas) {
  SendPosting posting = a.nic->post_sends(a.qp);
  const auto before = posting.begin();
  ASSERT_TRUE(before);
  engine::SendRequest& request = **before;
  request.id = request.remote_address = 1;
  request.opcode = engine::SendOpcode::kSendWithImm;
  request.signaled = request.solicited = request.fence = request.inline_data = true;
  request.immediate = request.invalidate_rkey = request.rkey = request.remote_srq = 2;
  request.target.path.destination = wire::Address::from_ipv4(3);
  posting.make_pieces(1).front() = a.piece(0, 64);

  const auto again = posting.begin();
  ASSERT_TRUE(again);
  ASSERT_EQ(*again, *before);
  EXPECT_EQ(request.id, 0U);
  EXPECT_EQ(request.opcode, engine::SendOpcode::kSend);
  EXPECT_FALSE(request.signaled || request.solicited || request.fence || request.inline_data);
  EXPECT_EQ(request.immediate, 0U);
  EXPECT_EQ(request.invalidate_rkey, 0U);
  EXPECT_EQ(request.remote_address, 0U);
  EXPECT_EQ(request.rkey, 0U);
  EXPECT_EQ(request.remote_srq, 0U);
  EXPECT_TRUE(request.target.path.destination.is_zero());
  EXPECT_TRUE(request.pieces.empty());
}

TEST_F(Posting, ARequestThatWasNotEndedLosesItsPlace) {
  SendPosting posting = a.nic->post_sends(a.qp);
  write(posting, 1);
  ASSERT_TRUE(posting.begin());
  write(posting, 2);
  ASSERT_TRUE(posting.publish());
  EXPECT_EQ(completed(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(Posting, AStateThatChangedMeanwhileRefusesAll) {
  SendPosting posting = a.nic->post_sends(a.qp);
  write(posting, 1);
  ASSERT_TRUE(a.to_state(QpState::kReset)) << "does not wait for the poster";
  EXPECT_EQ(posting.publish().error().condition, std::errc::invalid_argument);
  EXPECT_EQ(posting.begin().error().condition, std::errc::invalid_argument);
}

TEST_F(Posting, IsSentInOneCallAndOthersMayPost) {
  const auto before = a.nic->counters().packets_sent;
  SendPosting posting = a.nic->post_sends(a.qp);
  write(posting, 1);
  ASSERT_TRUE(a.nic->send(a.qp, posting));
  EXPECT_EQ(a.nic->counters().packets_sent, before + 1);
  SendPosting another = a.nic->post_sends(a.qp);  // would wait for ever
  EXPECT_TRUE(a.nic->send(a.qp, another)) << "nothing";
  EXPECT_EQ(a.nic->counters().packets_sent, before + 1);
}

TEST_F(Posting, WithoutARequestChangesNothing) {
  SendPosting posting = a.nic->post_sends(a.qp);
  // As the engine does, with the shard held, for receives that have tags.
  ASSERT_TRUE(a.qp->send_queue().post({.id = 7, .signaled = true}));
  EXPECT_FALSE(posting.any());
  EXPECT_TRUE(posting.publish());
  EXPECT_TRUE(a.nic->send(a.qp, posting));
  EXPECT_EQ(a.qp->send_queue().tail(), 1U);
}

TEST_F(Posting, AStateThatChangedMeanwhileSendsNothing) {
  SendPosting posting = a.nic->post_sends(a.qp);
  write(posting, 1);
  ASSERT_TRUE(a.to_state(QpState::kReset));
  EXPECT_EQ(a.nic->send(a.qp, posting).error().condition, std::errc::invalid_argument);
  EXPECT_TRUE(a.to_state(QpState::kErr)) << "the shard was left";
}

TEST_F(Posting, AFullQueueSaysSo) {
  SendPosting posting = a.nic->post_sends(a.qp);
  const std::uint32_t room = a.qp->send_queue().capacity();
  for (std::uint32_t i = 0; i < room; ++i) write(posting, i);
  EXPECT_EQ(posting.begin().error().condition, std::errc::not_enough_memory);
  ASSERT_TRUE(posting.publish());
  EXPECT_EQ(completed().size(), room);
}

TEST_F(Posting, InlineDataComeInParts) {
  SendPosting posting = a.nic->post_sends(a.qp);
  const auto request = posting.begin();
  ASSERT_TRUE(request);
  **request = {.id = 1,
               .opcode = engine::SendOpcode::kWrite,
               .signaled = true,
               .remote_address = b.base(),
               .rkey = b.region->key};
  posting.begin_inline();
  ASSERT_TRUE(posting.add_inline("lost", 4));
  posting.begin_inline();
  ASSERT_TRUE(posting.add_inline("ver", 3));
  ASSERT_TRUE(posting.add_inline("bena", 4));
  EXPECT_EQ(posting.add_inline(a.memory.data(), 64).error().condition, std::errc::invalid_argument);
  ASSERT_TRUE(posting.end());
  ASSERT_TRUE(posting.publish());
  EXPECT_EQ(completed(), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(std::memcmp(b.memory.data(), "verbena", 8), 0);
}

TEST_F(Posting, OtherPostersWait) {
  std::atomic<bool> posted{false};
  std::jthread other;
  {
    SendPosting posting = a.nic->post_sends(a.qp);
    write(posting, 1);
    other = std::jthread([&] {
      SendPosting theirs = a.nic->post_sends(a.qp);
      write(theirs, 2);
      EXPECT_TRUE(theirs.publish());
      posted.store(true);
    });
    EXPECT_FALSE(posted.load());
    ASSERT_TRUE(posting.publish());
  }
  other.join();
  EXPECT_EQ(completed(), (std::vector<std::uint64_t>{1, 2}));
}

}  // namespace
}  // namespace verbena::nic
