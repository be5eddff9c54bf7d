// SPDX-License-Identifier: Apache-2.0
#include "verbena/drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <vector>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::End;
using testing::must;
using testing::Pair;

mr_slice part(const End& end, std::size_t length, std::size_t offset = 0) {
  return must(end.memory.slice(offset, length));
}

/// A sink that notes what it got.
struct Noted {
  std::map<std::uint64_t, ibv_wc_status> got;
  completion_sink sink = [this](const work_completion& one) {
    got.emplace(one.wr_id(), one.status());
  };
};

TEST(Drain, FlushesWhatWasPostedAndHandsItOver) {
  Pair<rc> pair;
  for (std::uint64_t i = 1; i <= 3; ++i) must(pair.left_qp.post_recv(part(pair.left, 8), i));
  must(pair.left_qp.send(part(pair.left, 8), {.wr_id = 10}));  // the peer has no receive
  Noted noted;
  must(drain(pair.left_qp, pair.left.cq, 20s, noted.sink));
  EXPECT_EQ(noted.got.size(), 4);
  for (const auto& [wr_id, status] : noted.got) EXPECT_EQ(status, IBV_WC_WR_FLUSH_ERR) << wr_id;
  EXPECT_EQ(pair.left_qp.state(), qp_state::err);
  wc_batch<1> room;
  EXPECT_TRUE(must(pair.left.cq.poll(room)).empty());
}

TEST(Drain, MakesRoomInFullQueuesFirst) {
  Pair<rc> pair({.max_send_wr = 2, .max_recv_wr = 2});
  std::size_t posted = 0;
  while (pair.left_qp.post_recv(part(pair.left, 8), posted)) ++posted;
  while (pair.left_qp.send(part(pair.left, 8), {.wr_id = posted})) ++posted;
  Noted noted;
  must(drain(pair.left_qp, pair.left.cq, 20s, noted.sink));
  EXPECT_EQ(noted.got.size(), posted);
}

TEST(Drain, LosesNoCompletionOfAnotherQueuePair) {
  Pair<rc> pair;
  auto other = must(pair.left.pd.create_qp<rc>({.send_cq = pair.left.cq, .recv_cq = pair.left.cq}));
  const auto row = must(pair.left.ctx.routable_gid());
  must(other.connect(must(other.endpoint(row.of, row.index)),
                     must(other.endpoint(row.of, row.index))));
  must(other.post_recv(part(pair.left, 8), 77));
  must(other.to_error());
  Noted noted;
  must(drain(pair.left_qp, pair.left.cq, 20s, noted.sink));
  if (!noted.got.contains(77)) {
    EXPECT_EQ(pair.left.next().wr_id(), 77);
  }
}

TEST(Drain, KnowsQueuesOfSendsAndReceivesApart) {
  const End left("vrb0");
  const auto receives = must(left.ctx.create_cq({.depth = 64}));
  auto qp = must(left.pd.create_qp<ud>({.send_cq = left.cq, .recv_cq = receives}));
  must(qp.activate(port{1}, qkey{1}));
  must(qp.post_recv(part(left, 64), 5));
  Noted noted;
  must(drain(qp, {left.cq, receives}, 20s, noted.sink));
  EXPECT_THAT(noted.got, ::testing::ElementsAre(::testing::Pair(5, IBV_WC_WR_FLUSH_ERR)));
}

TEST(Drain, OfOneThatWasNeverUsedDoesNothing) {
  const End end("vrb0");
  auto qp = must(end.pd.create_qp<rc>({.send_cq = end.cq, .recv_cq = end.cq}));
  must(drain(qp, end.cq, 20s));
  EXPECT_EQ(qp.state(), qp_state::reset);
  const auto taken = std::move(qp);
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(drain(qp, end.cq, 20s).error(), std::errc::bad_file_descriptor);
}

TEST(Drain, OfARawPacketQueuePair) {
  const End end("vrb0");
  auto qp = must(end.pd.create_qp<raw_packet>({.send_cq = end.cq, .recv_cq = end.cq}));
  must(qp.activate(port{1}));
  must(qp.post_recv(part(end, 64), 5));
  Noted noted;
  must(drain(qp, end.cq, 20s, noted.sink));
  EXPECT_TRUE(noted.got.contains(5));
}

TEST(Drain, EndsWhenTheTimeIsOver) {
  Pair<rc> pair;
  const auto elsewhere = must(pair.left.ctx.create_cq({.depth = 4}));
  must(pair.left_qp.post_recv(part(pair.left, 8)));
  // Its completions go to another queue than the one that is polled.
  const auto late = drain(pair.left_qp, elsewhere, 20ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error(), std::errc::timed_out);
}

TEST(Scope, HasAllCompletedWhenItEnds) {
  Pair<rc> pair;
  must(pair.right_qp.post_recv(part(pair.right, 64), 1));
  Noted noted;
  const scope_options options{.finish = 20s, .sink = noted.sink};
  const scope_result ended = must(scope(
      pair.left_qp, pair.left.cq,
      [&](auto& s) -> Result<> {
        VERBENA_TRY(s.post_send(part(pair.left, 8), {.wr_id = 3, .flags = send_flags::none}));
        return s.post_write(part(pair.left, 8), must(pair.right.memory.remote()), {.wr_id = 4});
      },
      options));
  EXPECT_EQ(ended.posted, 2);
  EXPECT_EQ(ended.failed, 0);
  EXPECT_FALSE(ended.drained);
  EXPECT_THAT(noted.got, ::testing::ElementsAre(::testing::Pair(3, IBV_WC_SUCCESS),
                                                ::testing::Pair(4, IBV_WC_SUCCESS)));
  EXPECT_EQ(pair.left_qp.state(), qp_state::rts);
}

TEST(Scope, ARequestKeepsItsNumberAndIsPostedAgain) {
  Pair<rc> pair;
  std::vector<std::uint64_t> seen;
  const completion_sink sink = [&](const work_completion& one) { seen.push_back(one.wr_id()); };
  const mr_slice here = part(pair.left, 8);
  auto sends = send_request<rc>::write({&here, 1}, must(pair.right.memory.remote()), {.wr_id = 7});
  recv_request receives({&here, 1}, 8);
  must(scope(pair.left_qp, pair.left.cq,
             [&](auto& s) {
               for (int i = 0; i < 2; ++i) must(s.post(sends));
               EXPECT_TRUE(must(s.wait(20s)));
               for (int i = 0; i < 2; ++i) must(s.post(receives));
             },
             {.finish = 0ms, .flush = 20s, .sink = sink}));
  EXPECT_THAT(seen, ::testing::ElementsAre(7, 7, 8, 8));
}

/// What is added to the clock must not come out before now.
TEST(Scope, WaitsAsLongAsCanBeSaid) {
  Pair<rc> pair;
  must(pair.right_qp.post_recv(part(pair.right, 64)));
  const auto all = std::chrono::milliseconds::max();
  const scope_result ended =
      must(scope(pair.left_qp, pair.left.cq,
                 [&](auto& s) {
                   must(s.post_send(part(pair.left, 8)));
                   EXPECT_TRUE(must(s.wait(all)));
                   must(s.post_write(part(pair.left, 8), must(pair.right.memory.remote())));
                 },
                 {.finish = all, .flush = all}));
  EXPECT_FALSE(ended.drained);
  EXPECT_EQ(pair.left_qp.state(), qp_state::rts);
  must(pair.left_qp.post_recv(part(pair.left, 8), 9));
  Noted noted;
  must(drain(pair.left_qp, pair.left.cq, all, noted.sink));
  EXPECT_TRUE(noted.got.contains(9));
}

TEST(Scope, DrainsWhatDoesNotComplete) {
  Pair<rc> pair;
  Noted noted;
  const scope_options options{.finish = 0ms, .flush = 20s, .sink = noted.sink};
  const scope_result ended = must(scope(
      pair.left_qp, pair.left.cq, [&](auto& s) { must(s.post_recv(part(pair.left, 8), 6)); },
      options));
  EXPECT_TRUE(ended.drained);
  EXPECT_EQ(ended.failed, 1);
  ASSERT_TRUE(ended.first_failure);
  EXPECT_EQ(*ended.first_failure, std::errc::operation_canceled);
  EXPECT_EQ(noted.got.at(6), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.left_qp.state(), qp_state::err);
}

TEST(Scope, WaitsInside) {
  Pair<rc> pair;
  must(pair.right_qp.post_recv(part(pair.right, 64)));
  const scope_result ended =
      must(scope(pair.left_qp, pair.left.cq,
                 [&](auto& s) {
                   must(s.post_send(part(pair.left, 8)));
                   EXPECT_EQ(s.outstanding(), 1);
                   EXPECT_TRUE(must(s.wait(20s)));
                   EXPECT_EQ(s.outstanding(), 0);
                   must(s.post_write(part(pair.left, 8), must(pair.right.memory.remote())));
                 },
                 {.finish = 20s}));
  EXPECT_EQ(ended.posted, 2);
}

TEST(Scope, CountsOnlyWhatIsItsOwn) {
  Pair<rc> pair;
  must(pair.left_qp.post_recv(part(pair.left, 8), 1));  // from before; stays
  must(pair.right_qp.post_recv(part(pair.right, 64)));
  const scope_result ended =
      must(scope(pair.left_qp, pair.left.cq,
                 [&](auto& s) { must(s.post_send(part(pair.left, 8))); }, {.finish = 20s}));
  EXPECT_EQ(ended.posted, 1);
  EXPECT_FALSE(ended.drained);
  EXPECT_EQ(pair.left_qp.state(), qp_state::rts);
}

TEST(Scope, AnErrorOfTheBodyDrainsAtOnce) {
  Pair<rc> pair;
  const auto ended = scope(pair.left_qp, pair.left.cq,
                           [&](auto& s) -> Result<> {
                             VERBENA_TRY(s.post_recv(part(pair.left, 8)));
                             return fail(std::errc::protocol_error, "test");
                           },
                           {.finish = 1h});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error(), std::errc::protocol_error);
  EXPECT_EQ(pair.left_qp.state(), qp_state::err);
}

TEST(Scope, AnExceptionOfTheBodyDrainsToo) {
  Pair<rc> pair;
  const auto throws = [&](auto& s) {
    must(s.post_recv(part(pair.left, 8)));
    throw std::runtime_error("test");
  };
  EXPECT_THROW((void)scope(pair.left_qp, pair.left.cq, throws), std::runtime_error);
  EXPECT_EQ(pair.left_qp.state(), qp_state::err);
  wc_batch<1> room;
  EXPECT_TRUE(must(pair.left.cq.poll(room)).empty());
}

TEST(Scope, ResetsWhatCannotBeDrained) {
  Pair<rc> pair;
  const auto elsewhere = must(pair.left.ctx.create_cq({.depth = 4}));
  const auto ended =
      scope(pair.left_qp, elsewhere, [&](auto& s) { must(s.post_recv(part(pair.left, 8))); },
            {.finish = 0ms, .flush = 20ms});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error(), std::errc::timed_out);
  EXPECT_EQ(pair.left_qp.state(), qp_state::reset);
}

}  // namespace
}  // namespace verbena::verbs
