// SPDX-License-Identifier: Apache-2.0
// What a core makes of a peer that does not keep to the rules of frame.h.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "verbs/stream/core.h"
#include "verbs/stream/test_network.h"

namespace verbena::verbs::streams {
namespace {

using testing::FakeEnd;
using testing::small;

constexpr std::uint32_t kPadded = DataImmediate{.padding = kPadding}.value();

/// The failure after a receive of these bytes as a frame.
std::optional<Error> failure_after(FakeEnd& end, std::span<const std::byte> body) {
  end.pump();
  const std::uint32_t receive = end.receives.front();
  end.receives.pop_front();
  std::ranges::copy(body, end.core.slot(receive).begin());
  end.core.handle_received(receive, static_cast<std::uint32_t>(body.size()), kFrameImmediate);
  return end.core.failure();
}
std::optional<Error> failure_after(FakeEnd& end, const Frame& frame) {
  std::array<std::byte, kMaxFrame> body{};
  return failure_after(end, std::span(body).first(write_frame(frame, body)));
}
/// Of data.
std::optional<Error> failure_after(FakeEnd& end, std::uint32_t length,
                                   std::optional<std::uint32_t> immediate) {
  end.pump();
  const std::uint32_t receive = end.receives.front();
  end.receives.pop_front();
  end.core.handle_received(receive, length, immediate);
  return end.core.failure();
}

TEST(StreamProtocol, RefusesAPeerThatBreaksTheRules) {
  const Hello hello{
      .transport = stream_transport::messages, .receives = 4, .buffer_size = 64, .ring = {}};
  const auto after_hello = [&](auto... what) {
    FakeEnd end(small(stream_transport::messages));
    EXPECT_FALSE(failure_after(end, hello));
    const auto failure = failure_after(end, what...);
    return failure && *failure == std::errc::protocol_error ? std::string(failure->context())
                                                            : std::string();
  };
  EXPECT_THAT(after_hello(Frame(hello)), ::testing::HasSubstr("a second hello"));
  EXPECT_THAT(after_hello(Frame(Credit{.messages = 1})), ::testing::HasSubstr("1 messages"));
  EXPECT_THAT(after_hello(Frame(Credit{.bytes = 1})), ::testing::HasSubstr("1 bytes"));
  EXPECT_THAT(after_hello(Frame(Bye())), ::testing::HasSubstr("a bye without a fin"));
  EXPECT_THAT(after_hello(Frame(Leave())), ::testing::HasSubstr("a leave before its fin"));
  EXPECT_THAT(after_hello(8U, 1U), ::testing::HasSubstr("a release of 1 messages"));
  EXPECT_THAT(after_hello(8U, 0xff0000U), ::testing::HasSubstr("immediate 0xff0000"));
  EXPECT_THAT(after_hello(8U, 0x1000000U), ::testing::HasSubstr("8 bytes behind a WRITE"));
  EXPECT_THAT(after_hello(8U, kPadded), ::testing::HasSubstr("padding at the end of 8 bytes"));

  FakeEnd early(small(stream_transport::messages));
  EXPECT_TRUE(failure_after(early, 8, 0));
  FakeEnd other(small(stream_transport::messages));
  EXPECT_TRUE(failure_after(other, Fin()));

  FakeEnd ended(small(stream_transport::messages));
  EXPECT_FALSE(failure_after(ended, hello));
  EXPECT_FALSE(failure_after(ended, Fin()));
  EXPECT_TRUE(failure_after(ended, 8, 0));
}

TEST(StreamProtocol, RefusesDataBeyondTheCredit) {
  const Hello hello{
      .transport = stream_transport::messages, .receives = 4, .buffer_size = 64, .ring = {}};
  for (const auto transport : {stream_transport::messages, stream_transport::ring}) {
    FakeEnd end(small(transport));
    EXPECT_FALSE(failure_after(end, hello));
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(failure_after(end, 64, 0));
    const auto failure = failure_after(end, 1, 0);
    ASSERT_TRUE(failure);
    EXPECT_EQ(*failure, std::errc::protocol_error);
  }
  FakeEnd end(small(stream_transport::ring));
  EXPECT_FALSE(failure_after(end, hello));
  EXPECT_FALSE(failure_after(end, 200, 0));
  EXPECT_TRUE(failure_after(end, 57, 0)) << "it does not fit before the ring's end";
}

TEST(StreamProtocol, RefusesMorePacketsBeforeThanThereIsRoomFor) {
  const Hello hello{
      .transport = stream_transport::messages, .receives = 4, .buffer_size = 64, .ring = {}};
  const auto before = [](std::uint8_t packets) { return DataImmediate{.before = packets}.value(); };
  FakeEnd end(small(stream_transport::ring));  // of 256 bytes
  EXPECT_FALSE(failure_after(end, hello));
  EXPECT_FALSE(failure_after(end, 60, before(3)));
  EXPECT_EQ(end.core.front()->size(), 252U);
  const auto failure = failure_after(end, 1, before(1));
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->context(), ::testing::HasSubstr("6 bytes to byte 252 of the ring"));
  FakeEnd most(small(stream_transport::ring));
  EXPECT_FALSE(failure_after(most, hello));
  EXPECT_TRUE(failure_after(most, 0xffffffff, before(kMostBefore)));
}

TEST(StreamProtocol, RefusesPaddingThatIsNone) {
  const Hello hello{
      .transport = stream_transport::messages, .receives = 4, .buffer_size = 64, .ring = {}};
  stream_options options = small(stream_transport::ring);
  options.buffer_size = kPaddedFrom;
  FakeEnd end(options);
  EXPECT_FALSE(failure_after(end, hello));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(failure_after(end, kPaddedFrom + kPadding, kPadded));
  EXPECT_EQ(end.core.front()->size(), kPaddedFrom);
  EXPECT_TRUE(failure_after(end, kPaddedFrom + kPadding, kPadded)) << "more than are free";
  FakeEnd other(options);
  EXPECT_FALSE(failure_after(other, hello));
  EXPECT_TRUE(failure_after(other, kPaddedFrom + kPadding - 1, kPadded)) << "too few data";
}

}  // namespace
}  // namespace verbena::verbs::streams
