// SPDX-License-Identifier: Apache-2.0
#include "verbena/completion_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::at_next_of;
using testing::End;
using ::testing::HasSubstr;
using testing::must;
using testing::next_of;

/// A queue pair whose completions go where the test wants, and a peer.
template <typename Queue>
struct Watched {
  explicit Watched(const End& at, Queue the_cq)
      : cq(std::move(the_cq)),
        qp(must(at.pd.create_qp<rc>({.send_cq = cq, .recv_cq = cq}))),
        peer_qp(must(peer.pd.create_qp<rc>({.send_cq = peer.cq, .recv_cq = peer.cq}))) {
    const auto row = must(at.ctx.routable_gid());
    const qp_endpoint here = must(qp.endpoint(row.of, row.index));
    const qp_endpoint there = must(peer_qp.endpoint(row.of, row.index));
    must(qp.connect(here, there));
    must(peer_qp.connect(there, here));
  }
  /// A completion of ours comes.
  void write(const End& at, std::uint64_t wr_id) const {
    must(qp.write(must(at.memory.slice(0, 8)), must(peer.memory.remote()), {.wr_id = wr_id}));
  }
  /// The peer has sent.
  void get(const End& at, std::uint64_t wr_id, send_flags flags = send_flags::none) const {
    must(qp.post_recv(must(at.memory.slice(0, 8)), wr_id));
    must(peer_qp.send(must(peer.memory.slice(0, 8)), {.flags = flags | send_flags::signaled}));
    EXPECT_TRUE(peer.next().ok());
  }

  End peer{"vrb1"};
  Queue cq;
  queue_pair<rc> qp;
  queue_pair<rc> peer_qp;
};

TEST(CompletionQueue, IsResized) {
  const End end("vrb0");
  Watched watched(end, must(end.ctx.create_cq({.depth = 2})));
  const std::size_t before = watched.cq.depth();
  EXPECT_GE(before, 2);
  must(watched.cq.resize(before + 100));
  EXPECT_GE(watched.cq.depth(), before + 100);
  for (std::uint64_t id = 0; id < before + 10; ++id) watched.write(end, id);
  for (std::uint64_t id = 0; id < before + 10; ++id) {
    const work_completion got = next_of(watched.cq);
    EXPECT_TRUE(got.ok());
    EXPECT_EQ(got.wr_id(), id);
  }
  EXPECT_EQ(watched.cq.resize(0).error(), std::errc::invalid_argument);
  EXPECT_EQ(watched.cq.resize(std::size_t{1} << 40).error(), std::errc::invalid_argument);
}

TEST(CompletionQueue, WithoutDepthIsRefused) {
  const End end("vrb0");
  EXPECT_EQ(end.ctx.create_cq({.depth = 0}).error(), std::errc::invalid_argument);
  EXPECT_EQ(end.ctx.create_cq_ex({.depth = 0}).error(), std::errc::invalid_argument);
  auto channel = must(end.ctx.create_channel());
  const auto taken = std::move(channel);
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(end.ctx.create_cq({.channel = &channel}).error(), std::errc::bad_file_descriptor);
}

TEST(ExtendedCompletionQueue, IsReadFieldByField) {
  const End end("vrb0");
  const Watched watched(end, must(end.ctx.create_cq_ex({.depth = 16})));
  {
    poll_guard none = watched.cq.start_poll();
    EXPECT_FALSE(none);
    EXPECT_TRUE(none.begun());
    EXPECT_FALSE(must(none.next()));
  }
  must(watched.qp.post_recv(must(end.memory.slice(0, 64)), 9));
  must(watched.peer_qp.send_with_immediate(must(watched.peer.memory.slice(0, 8)), 77));
  at_next_of(watched.cq, [&](poll_guard& poll) {
    EXPECT_TRUE(poll.ok());
    EXPECT_TRUE(poll.result());
    EXPECT_EQ(poll.wr_id(), 9);
    EXPECT_EQ(poll.opcode(), IBV_WC_RECV);
    EXPECT_EQ(poll.byte_len(), 8);
    EXPECT_EQ(poll.immediate(), 77);
    EXPECT_EQ(poll.qp_num(), watched.qp.number());
    EXPECT_FALSE(must(poll.next()));
  });
}

TEST(ExtendedCompletionQueue, GoesOnFromOneToTheNext) {
  const End end("vrb0");
  const Watched watched(end, must(end.ctx.create_cq_ex({.depth = 16})));
  for (std::uint64_t id = 1; id <= 3; ++id) watched.write(end, id);
  std::vector<std::uint64_t> ids;
  while (ids.size() < 3)
    at_next_of(watched.cq, [&](poll_guard& poll) {
      do {
        EXPECT_FALSE(poll.immediate());
        ids.push_back(poll.wr_id());
      } while (must(poll.next()));
    });
  EXPECT_THAT(ids, ::testing::ElementsAre(1, 2, 3));
}

TEST(ExtendedCompletionQueue, SaysWhyARequestFailed) {
  const End end("vrb0");
  // Without the number of the queue pair, which is then 0.
  const Watched watched(end,
                        must(end.ctx.create_cq_ex({.depth = 16, .fields = wc_fields::byte_len})));
  must(watched.qp.write(must(end.memory.slice(0, 8)), remote_region(0, 8, 0x999), {.wr_id = 5}));
  at_next_of(watched.cq, [](const poll_guard& poll) {
    EXPECT_FALSE(poll.ok());
    const auto result = poll.result();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), std::errc::permission_denied);
    ASSERT_NE(result.error().completion(), nullptr);
    EXPECT_EQ(result.error().completion()->wr_id, 5);
  });
}

TEST(ExtendedCompletionQueue, SaysWhenItWas) {
  const End end("vrb0");
  const Watched watched(
      end, must(end.ctx.create_cq_ex(
               {.depth = 16,
                .fields = wc_fields::completion_timestamp | wc_fields::wallclock_timestamp})));
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  std::uint64_t last = 0;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    watched.write(end, id);
    at_next_of(watched.cq, [&](const poll_guard& poll) {
      EXPECT_GE(poll.timestamp(), last);
      last = poll.timestamp();
      // The machine's clock may be set meanwhile, though not by an hour.
      EXPECT_GE(poll.wallclock(), before - 1h);
      EXPECT_LE(poll.wallclock(), std::chrono::system_clock::now().time_since_epoch() + 1h);
    });
  }
}

TEST(ExtendedCompletionQueue, IsPolledByTheOldCallToo) {
  const End end("vrb0");
  const Watched watched(end, must(end.ctx.create_cq_ex({.depth = 16, .single_threaded = true})));
  watched.write(end, 3);
  const completion_queue& plain = watched.cq;
  EXPECT_EQ(next_of(plain).wr_id(), 3);
}

TEST(ExtendedCompletionQueue, ModeratesItsEvents) {
  const End end("vrb0");
  const auto channel = must(end.ctx.create_channel());
  const Watched watched(end, must(end.ctx.create_cq_ex({.depth = 16, .channel = &channel})));
  must(watched.cq.moderate(2, 60ms));
  must(watched.cq.request_notification());
  watched.write(end, 1);
  watched.write(end, 2);
  EXPECT_TRUE(must(channel.wait(20s)));
  EXPECT_EQ(must(channel.get_event()).cq, watched.cq.native());
  const auto longer = watched.cq.moderate(1, 66ms);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error(), std::errc::invalid_argument);
  EXPECT_THAT(longer.error().message(), HasSubstr("65535"));
}

TEST(ExtendedCompletionQueue, ThatWasMovedFromReports) {
  const End end("vrb0");
  auto cq = must(end.ctx.create_cq_ex({}));
  const auto taken = std::move(cq);
  // NOLINTBEGIN(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(cq.start_poll().begun().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(cq.moderate(1, 1ms).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(cq.resize(5).error(), std::errc::bad_file_descriptor);
  // NOLINTEND(bugprone-use-after-move)
}

TEST(CompletionChannel, TellsOfACompletionThatWasAskedFor) {
  const End end("vrb0");
  const auto channel = must(end.ctx.create_channel());
  const Watched watched(end, must(end.ctx.create_cq({.depth = 16, .channel = &channel})));
  EXPECT_GE(channel.fd(), 0);
  must(watched.cq.request_notification());
  EXPECT_FALSE(must(channel.wait(0ms)));
  watched.write(end, 1);
  EXPECT_EQ(must(channel.get_event()).cq, watched.cq.native());  // waits
  EXPECT_EQ(next_of(watched.cq).wr_id(), 1);
  // It was asked for once.
  watched.write(end, 2);
  EXPECT_EQ(next_of(watched.cq).wr_id(), 2);
  EXPECT_FALSE(must(channel.wait(0ms)));
}

TEST(CompletionChannel, OfSolicitedOnesOnly) {
  const End end("vrb0");
  const auto channel = must(end.ctx.create_channel());
  const Watched watched(end, must(end.ctx.create_cq({.depth = 16, .channel = &channel})));
  must(watched.cq.request_notification(notify::solicited));
  watched.get(end, 1);
  EXPECT_EQ(next_of(watched.cq).wr_id(), 1);
  EXPECT_FALSE(must(channel.wait(0ms)));
  watched.get(end, 2, send_flags::solicited);
  EXPECT_TRUE(must(channel.wait(20s)));
  EXPECT_EQ(must(channel.get_event()).cq, watched.cq.native());
}

TEST(CompletionChannel, ThatDoesNotBlockSaysThatItWould) {
  const End end("vrb0");
  const auto channel = must(end.ctx.create_channel());
  must(channel.set_blocking(false));
  const auto none = channel.get_event();
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().would_block());
}

TEST(CompletionChannel, ServesSeveralQueues) {
  const End end("vrb0");
  const auto channel = must(end.ctx.create_channel());
  const Watched one(end, must(end.ctx.create_cq({.depth = 16, .channel = &channel})));
  const Watched other(end, must(end.ctx.create_cq({.depth = 16, .channel = &channel})));
  must(one.cq.request_notification());
  must(other.cq.request_notification());
  other.write(end, 1);
  EXPECT_EQ(must(channel.get_event()).cq, other.cq.native());
  one.write(end, 2);
  EXPECT_EQ(must(channel.get_event()).cq, one.cq.native());
}

/// Destroying a queue waits for each event to be acknowledged.
TEST(CompletionChannel, AQueueWhoseEventsWereTakenCanBeDestroyed) {
  const End end("vrb0");
  std::optional<completion_channel> channel = must(end.ctx.create_channel());
  {
    Watched watched(end, must(end.ctx.create_cq({.depth = 16, .channel = &*channel})));
    EXPECT_EQ(channel->close().error(), std::errc::device_or_resource_busy);
    for (std::uint64_t id = 1; id <= 3; ++id) {
      must(watched.cq.request_notification());
      watched.write(end, id);
      EXPECT_EQ(must(channel->get_event()).cq, watched.cq.native());
    }
    must(watched.qp.close());
    must(watched.cq.close());
  }
  must(channel->close());
  EXPECT_EQ(channel->fd(), -1);
  EXPECT_EQ(channel->get_event().error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(channel->wait(0ms).error(), std::errc::bad_file_descriptor);
}

TEST(CompletionChannel, LivesAsLongAsAQueueOfIt) {
  const End end("vrb0");
  std::optional<completion_channel> channel = must(end.ctx.create_channel());
  const Watched watched(end, must(end.ctx.create_cq({.depth = 16, .channel = &*channel})));
  channel.reset();
  must(watched.cq.request_notification());
  watched.write(end, 1);
  EXPECT_EQ(next_of(watched.cq).wr_id(), 1);
}

}  // namespace
}  // namespace verbena::verbs
