// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "verbs/stream/test_network.h"

namespace verbena::verbs::streams {
namespace {

using namespace std::chrono_literals;
using testing::acknowledge;
using testing::arrive;
using testing::bytes_of;
using testing::deliver;
using testing::FakeEnd;
using testing::settle;
using testing::small;
using testing::text_of;

constexpr auto kBoth = {stream_transport::messages, stream_transport::ring};

/// So that all its packets are of one length.
TEST(StreamCore, AMessageHasAnImmediateWhereItReleasesSomething) {
  FakeEnd left(small(stream_transport::messages));
  FakeEnd right(small(stream_transport::messages));
  const auto immediate_of = [](FakeEnd& end, std::string_view text) {
    end.write(bytes_of(text));
    end.pump();
    EXPECT_EQ(end.under_way.back().kind, Transmit::Kind::kMessage);
    return end.under_way.back().immediate;
  };
  settle(left, right);
  EXPECT_EQ(immediate_of(left, "question"), std::nullopt);
  settle(left, right);
  EXPECT_EQ(text_of(right), "question");
  EXPECT_EQ(immediate_of(right, "answer"), 1U);
  EXPECT_EQ(immediate_of(right, "more"), std::nullopt);
}

TEST(StreamCore, AFewBytesAtTheEndOfTheBufferMakeNoMessage) {
  stream_options options = small(stream_transport::messages);
  options.buffer_size = 100;
  options.send_buffer = 204;
  FakeEnd left(options);
  FakeEnd right(options);
  settle(left, right);
  const std::string text(100, 'x');
  const auto offset_of = [&] {
    EXPECT_EQ(left.write(bytes_of(text)), 100);
    left.pump();
    return left.under_way.back().offset - left.under_way.front().offset;
  };
  EXPECT_EQ(offset_of(), 0);
  EXPECT_EQ(offset_of(), 100);
  EXPECT_EQ(left.write(bytes_of(text)), 0) << "4 bytes are left";
  const Transmit first = left.under_way.front();
  settle(left, right);
  EXPECT_EQ(left.write(bytes_of(text)), 100);
  left.pump();
  EXPECT_EQ(left.under_way.back().offset, first.offset);
  settle(left, right);
  EXPECT_EQ(text_of(right), text + text + text);
}

/// Each has a longer packet at its beginning, and at its end, which a software NIC sends apart.
TEST(StreamCore, AMessageIntoALongRingMayBeAQuarterOfIt) {
  const std::string text(300, 'x');
  const auto longest = [&](stream_transport transport, std::size_t receives) {
    FakeEnd left(small(transport, receives));
    FakeEnd right(small(transport, receives));
    settle(left, right);
    const std::size_t written = left.write(bytes_of(text));
    settle(left, right);
    EXPECT_EQ(text_of(right), text.substr(0, written));
    EXPECT_EQ(right.core.counters().messages_received, 1);
    return written;
  };
  EXPECT_EQ(longest(stream_transport::ring, 16), 256);
  EXPECT_EQ(longest(stream_transport::ring, 2), 64) << "as the buffer size says";
  EXPECT_EQ(longest(stream_transport::messages, 16), 64);
}

TEST(StreamCore, MuchIsUnderWayByItsBytesOrByItsMessages) {
  stream_options options = small(stream_transport::messages);
  options.buffer_size = 100;
  options.send_buffer = 400;
  for (const std::string& text : {std::string(100, 'x'), std::string("three of four")}) {
    FakeEnd left(options);
    FakeEnd right(options);
    settle(left, right);
    for (int messages = 3; messages > 0; --messages) {
      EXPECT_FALSE(left.core.much_under_way());
      left.write(bytes_of(text));
      left.pump();
    }
    EXPECT_TRUE(left.core.much_under_way());
    arrive(left, right);
    acknowledge(left);
    EXPECT_FALSE(left.core.much_under_way());
  }
}

TEST(StreamCore, DirectBytesGoFromWhereTheyLieAndTakeNoneOfTheSendBuffer) {
  const std::string text(100, 'x');
  for (const auto transport : kBoth) {
    FakeEnd left(small(transport));
    FakeEnd right(small(transport));
    EXPECT_EQ(left.write_direct(bytes_of(text)), 0) << "before the peer's hello";
    settle(left, right);
    EXPECT_EQ(left.write_direct(bytes_of(text)), 64);
    EXPECT_EQ(left.write_direct(bytes_of(text)), 0) << "the one before is no message yet";
    left.pump();
    EXPECT_EQ(left.under_way.back().direct, bytes_of(text).data());
    EXPECT_EQ(left.write(bytes_of("copied")), 6);
    left.pump();
    EXPECT_EQ(left.under_way.back().direct, nullptr);
    EXPECT_EQ(left.write_direct(bytes_of("ab")), 2);
    left.pump();
    EXPECT_EQ(left.core.counters().bytes_direct, 66);
    EXPECT_EQ(left.core.counters().bytes_sent, 72);
    settle(left, right);
    EXPECT_EQ(text_of(right), text.substr(0, 64) + "copiedab");
    left.core.shutdown();
    EXPECT_EQ(left.core.direct_room().error(), std::errc::broken_pipe);
  }
}

/// Each costs three packets, and the peer is not to wait for one.
TEST(StreamCore, CreditsComeAtThreeQuartersOrOfFewAtHalf) {
  struct Case {
    std::size_t receives, announced;
  };
  for (const auto& [receives, announced] :
       {Case{1, 1}, Case{4, 2}, Case{8, 4}, Case{16, 12}, Case{32, 24}}) {
    FakeEnd left(small(stream_transport::messages, receives));
    FakeEnd right(small(stream_transport::messages, receives));
    settle(left, right);
    for (std::size_t i = 1; i <= announced; ++i) {
      EXPECT_EQ(right.core.counters().frames_sent, 1U) << i << " of " << receives;
      left.write(bytes_of("x"));
      settle(left, right);
      EXPECT_EQ(text_of(right), "x");
    }
    settle(left, right);
    EXPECT_EQ(right.core.counters().frames_sent, 2U) << receives;
  }
}

TEST(StreamCore, BytesGoBothWays) {
  for (const auto transport : kBoth) {
    FakeEnd left(small(transport));
    FakeEnd right(small(transport));
    EXPECT_EQ(left.write(bytes_of("early")), 0);
    settle(left, right);
    EXPECT_EQ(left.write(bytes_of("question")), 8);
    EXPECT_EQ(right.write(bytes_of("answer")), 6);
    settle(left, right);
    EXPECT_EQ(text_of(right), "question");
    EXPECT_EQ(text_of(left), "answer");
    EXPECT_TRUE(left.core.front().error().would_block());
    EXPECT_EQ(left.core.counters().bytes_sent, 8);
    EXPECT_EQ(left.core.counters().messages_received, 1);
  }
}

TEST(StreamCore, EachDirectionFollowsItsReceiver) {
  FakeEnd left(small(stream_transport::ring));
  FakeEnd right(small(stream_transport::messages));
  settle(left, right);
  left.write(bytes_of("a"));
  left.pump();
  ASSERT_FALSE(left.under_way.empty());
  EXPECT_EQ(left.under_way.back().kind, Transmit::Kind::kMessage);
  right.write(bytes_of("b"));
  right.pump();
  ASSERT_FALSE(right.under_way.empty());
  EXPECT_EQ(right.under_way.back().kind, Transmit::Kind::kWrite);
}

TEST(StreamCore, AWriterWaitsForAReaderAndGoesOn) {
  for (const auto transport : kBoth) {
    FakeEnd left(small(transport));
    FakeEnd right(small(transport));
    settle(left, right);
    std::size_t written = 0;
    const std::vector<std::byte> data(4096);
    while (const std::size_t n = left.write(data)) {
      written += n;
      settle(left, right);
    }
    EXPECT_EQ(written, 4 * 64);
    EXPECT_EQ(left.core.counters().stalls, 1);
    EXPECT_TRUE(left.core.room().error().would_block());
    std::array<std::byte, 64> into{};
    for (int i = 0; i < 2; ++i) EXPECT_EQ(right.read(into), 64);
    settle(left, right);
    EXPECT_TRUE(left.core.room());
  }
}

TEST(StreamCore, CreditMayComeBeforeTheCompletion) {
  FakeEnd left(small(stream_transport::messages, 1));
  FakeEnd right(small(stream_transport::messages, 1));
  settle(left, right);
  // Sent, read and released; the sender has not heard of any completion.
  std::array<std::byte, 64> into{};
  for (int i = 0; i < 4; ++i) {
    left.write(bytes_of("x"));
    left.pump();
    ASSERT_EQ(left.under_way.size(), 1);
    deliver(left, right);
    EXPECT_EQ(right.read(into), 1);
    right.pump();
    ASSERT_FALSE(right.under_way.empty());
    deliver(right, left);
  }
  // Four slots are in use, whatever the credit says.
  EXPECT_EQ(left.write(bytes_of("x")), 0);
  acknowledge(left);
  EXPECT_EQ(left.write(bytes_of("x")), 1);
  EXPECT_EQ(left.core.counters().stalls, 0);
}

TEST(StreamCore, HalfCloseIsTheEndBehindAllData) {
  for (const auto transport : kBoth) {
    FakeEnd left(small(transport));
    FakeEnd right(small(transport));
    settle(left, right);
    left.write(bytes_of("last words"));
    left.core.shutdown();
    left.core.shutdown();
    EXPECT_EQ(left.core.room().error(), std::errc::broken_pipe);
    EXPECT_TRUE(left.core.delivered().error().would_block());
    settle(left, right);
    EXPECT_TRUE(left.core.delivered());
    EXPECT_EQ(text_of(right), "last words");
    EXPECT_TRUE(right.core.front()->empty());
    // The other direction is open.
    right.write(bytes_of("still here"));
    settle(left, right);
    EXPECT_EQ(text_of(left), "still here");
    EXPECT_TRUE(left.core.ended().error().would_block());
    right.core.shutdown();
    settle(left, right);
    EXPECT_TRUE(left.core.front()->empty());
    EXPECT_TRUE(left.core.ended());
    EXPECT_TRUE(right.core.ended());
  }
}

TEST(StreamCore, AFailureAfterTheEndIsNone) {
  FakeEnd left(small(stream_transport::messages));
  FakeEnd right(small(stream_transport::messages));
  left.core.shutdown();
  right.core.shutdown();
  settle(left, right);
  left.core.handle_failure(Error(std::errc::connection_reset, "test"));
  left.core.handle_failure(Error(std::errc::connection_reset, "test"));
  EXPECT_TRUE(left.core.ended());
  EXPECT_TRUE(left.core.delivered());
  EXPECT_TRUE(left.core.front()->empty());
}

TEST(StreamCore, WhoHasLeftIsNotWaitedFor) {
  for (const auto transport : kBoth) {
    FakeEnd left(small(transport));
    FakeEnd right(small(transport));
    settle(left, right);
    left.write(bytes_of("last words"));
    left.core.shutdown();
    settle(left, right);
    left.core.leave();
    EXPECT_TRUE(left.core.settled().error().would_block());
    settle(left, right);
    EXPECT_TRUE(left.core.settled());
    EXPECT_EQ(text_of(right), "last words");
    EXPECT_TRUE(right.core.front()->empty());
    EXPECT_EQ(right.core.room().error(), std::errc::broken_pipe);
    right.core.leave();
    EXPECT_FALSE(right.core.poll_transmit());
    EXPECT_FALSE(right.core.poll_timeout(Core::Time(1h)));
    EXPECT_TRUE(right.core.settled());
    EXPECT_TRUE(right.core.ended());
  }
}

TEST(StreamCore, WhatDidNotArriveBeforeThePeerLeftIsLost) {
  FakeEnd left(small(stream_transport::messages));
  FakeEnd right(small(stream_transport::messages));
  settle(left, right);
  right.write(bytes_of("too late"));
  right.pump();
  left.core.leave();
  left.pump();
  while (!left.under_way.empty()) deliver(left, right);
  EXPECT_TRUE(right.core.settled());
  EXPECT_TRUE(right.core.ended().error().would_block());
  right.core.handle_failure(Error(std::errc::timed_out, "test"));
  EXPECT_EQ(right.core.ended().error(), std::errc::timed_out);
}

/// Nor is it sent a fin, which would be waited for.
TEST(StreamCore, AShutdownBehindThePeersLeaveIsDelivered) {
  FakeEnd left(small(stream_transport::messages));
  FakeEnd right(small(stream_transport::messages));
  settle(left, right);
  right.write(bytes_of("in time"));
  settle(left, right);
  left.core.leave();
  settle(left, right);
  right.core.shutdown();
  EXPECT_TRUE(right.core.delivered());
  EXPECT_TRUE(right.core.ended());
}

TEST(StreamCore, WhatIsWrittenAsThePeerLeavesIsLost) {
  FakeEnd left(small(stream_transport::messages));
  FakeEnd right(small(stream_transport::messages));
  settle(left, right);
  right.write(bytes_of("too late"));
  left.core.leave();
  left.pump();
  while (!left.under_way.empty()) deliver(left, right);
  right.pump();
  EXPECT_EQ(right.core.delivered().error(), std::errc::broken_pipe);
  right.core.shutdown();
  EXPECT_EQ(right.core.delivered().error(), std::errc::broken_pipe);
  EXPECT_EQ(right.core.ended().error(), std::errc::broken_pipe);
}

/// Its queue pair goes soon after its leave, and fails what is under way.
TEST(StreamCore, ThatThePeerHasLeftCountsMoreThanAFailure) {
  FakeEnd left(small(stream_transport::messages));
  FakeEnd right(small(stream_transport::messages));
  settle(left, right);
  left.core.leave();
  settle(left, right);
  right.core.handle_failure(Error(std::errc::connection_reset, "test"));
  EXPECT_EQ(right.core.room().error(), std::errc::broken_pipe);
}

TEST(StreamCore, AByeInThePlaceOfACompletionEndsIt) {
  FakeEnd left(small(stream_transport::messages));
  FakeEnd right(small(stream_transport::messages));
  settle(left, right);
  left.core.shutdown();
  right.core.shutdown();
  left.pump();
  while (!left.under_way.empty()) deliver(left, right);
  right.pump();
  while (!right.under_way.empty()) deliver(right, left);
  left.core.handle_failure(Error(std::errc::timed_out, "test"));
  EXPECT_TRUE(left.core.ended());
}

TEST(StreamCore, TheFirstFailureCountsAndDataBeforeItAreRead) {
  FakeEnd left(small(stream_transport::messages));
  FakeEnd right(small(stream_transport::messages));
  settle(left, right);
  left.write(bytes_of("before"));
  settle(left, right);
  right.core.handle_failure(Error(std::errc::timed_out, "first"));
  right.core.handle_failure(Error(std::errc::connection_reset, "second"));
  EXPECT_EQ(text_of(right), "before");
  EXPECT_EQ(right.core.front().error(), std::errc::timed_out);
  EXPECT_EQ(right.core.room().error(), std::errc::timed_out);
  EXPECT_TRUE(right.core.delivered()) << "nothing was written";
  EXPECT_EQ(right.core.ended().error(), std::errc::timed_out);
  EXPECT_FALSE(right.core.poll_transmit());
}

TEST(StreamCore, AQuietPeerIsAskedForASignOfLife) {
  FakeEnd left(small(stream_transport::messages));
  FakeEnd right(small(stream_transport::messages));
  settle(left, right);
  const Core::Time start{1h};
  left.core.handle_timeout(start);
  EXPECT_EQ(left.core.poll_timeout(start), start + 1s);
  EXPECT_FALSE(left.core.poll_transmit());
  left.core.handle_timeout(start + 1s);
  const auto probe = left.core.poll_transmit();
  ASSERT_TRUE(probe);
  EXPECT_EQ(probe->kind, Transmit::Kind::kProbe);
  // One at a time.
  left.core.handle_timeout(start + 2s);
  EXPECT_FALSE(left.core.poll_transmit());
  left.core.handle_sent();
  left.core.handle_timeout(start + 3s);
  EXPECT_FALSE(left.core.poll_transmit());
  left.core.handle_timeout(start + 4s);
  EXPECT_TRUE(left.core.poll_transmit());
}

TEST(StreamCore, AQuietPeerMayBeQuietForAsLongAsCanBeSaid) {
  stream_options options = small(stream_transport::messages);
  options.keep_alive = std::chrono::milliseconds::max();
  FakeEnd left(options);
  FakeEnd right(options);
  settle(left, right);
  const Core::Time start{1h};
  left.core.handle_timeout(start);
  EXPECT_GT(left.core.poll_timeout(start), start + 24h);
  left.core.handle_timeout(start + 24h);
  EXPECT_FALSE(left.core.poll_transmit());
}

TEST(StreamCore, OptionsHaveBounds) {
  EXPECT_TRUE(check_options({}));
  EXPECT_FALSE(check_options({.buffer_size = 63}));
  EXPECT_FALSE(check_options({.receives = 0}));
  EXPECT_FALSE(check_options({.receives = stream_options::max_receives + 1}));
  EXPECT_FALSE(check_options({.sends = 0}));
  EXPECT_FALSE(check_options({.send_buffer = 0}));
  EXPECT_FALSE(check_options({.linger = -1ms}));
}

}  // namespace
}  // namespace verbena::verbs::streams
