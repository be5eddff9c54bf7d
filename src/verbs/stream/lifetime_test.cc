// SPDX-License-Identifier: Apache-2.0
//
// What holds of every handle of a stream: one that was moved from or closed reports, any order of
// destruction is right, and what is refused says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "verbs/stream/test_streams.h"
#include "verbs/test_error.h"

namespace verbena::verbs {
namespace {

using namespace std::chrono_literals;
using testing::bytes_of;
using testing::IsRefused;
using testing::must;
using testing::StreamEnd;
using testing::Streams;

constexpr auto kWrong = std::errc::invalid_argument;

auto empty(const char* verb) {
  return IsRefused(std::errc::bad_file_descriptor, verb, "the handle is empty");
}

template <typename Reader>
void reads_nothing(Reader& of) {
  std::array<std::byte, 4> into{};
  EXPECT_THAT(of.read_some(into), empty("stream::read_some"));
  EXPECT_THAT(of.read(into), empty("stream::read"));
  EXPECT_THAT(of.try_read_some(into), empty("stream::try_read_some"));
  EXPECT_THAT(of.peek(), empty("stream::peek"));
  EXPECT_THAT(of.consume(0), empty("stream::consume"));
  EXPECT_EQ(of.read_fd(), -1);
  EXPECT_EQ(of.counters().bytes_received, 0);
  of.set_read_timeout(1ms);
}

template <typename Writer>
void writes_nothing(Writer& of) {
  const auto from = bytes_of("text");
  EXPECT_THAT(of.write_some(from), empty("stream::write_some"));
  EXPECT_THAT(of.write(from), empty("stream::write"));
  EXPECT_THAT(of.try_write_some(from), empty("stream::try_write_some"));
  EXPECT_THAT(of.prepare(), empty("stream::prepare"));
  EXPECT_THAT(of.commit(0), empty("stream::commit"));
  EXPECT_THAT(of.flush(), empty("stream::flush"));
  EXPECT_THAT(of.shutdown(), empty("stream::shutdown"));
  EXPECT_EQ(of.write_fd(), -1);
  EXPECT_EQ(of.counters().bytes_sent, 0);
  of.set_write_timeout(1ms);
}

void is_empty(stream& one) {
  reads_nothing(one);
  writes_nothing(one);
  EXPECT_FALSE(one.local_addr());
  EXPECT_FALSE(one.peer_addr());
  EXPECT_EQ(one.describe(), "a closed stream");
  EXPECT_THAT(one.close(), empty("stream::close"));
}

TEST(StreamLifetime, OneThatWasMovedFromOrClosedReports) {
  Streams pair;
  stream moved = std::move(pair.left);
  is_empty(pair.left);  // NOLINT(bugprone-use-after-move): it is what is tested
  (void)moved.close(1ms);
  is_empty(moved);
  auto [reader, writer] = std::move(pair.right).split();
  is_empty(pair.right);  // NOLINT(bugprone-use-after-move): likewise
  const read_half other_reader = std::move(reader);
  reads_nothing(reader);  // NOLINT(bugprone-use-after-move): likewise
  const write_half other_writer = std::move(writer);
  writes_nothing(writer);  // NOLINT(bugprone-use-after-move): likewise
}

TEST(StreamLifetime, AssignedItEndsWhatWasThere) {
  Streams one;
  Streams other;
  one.left = std::move(other.left);
  is_empty(other.left);  // NOLINT(bugprone-use-after-move): it is what is tested
  std::array<std::byte, 4> into{};
  EXPECT_EQ(must(one.right.read_some(into)), 0) << "its peer has gone";
  must(one.left.write(bytes_of("text")));
  EXPECT_EQ(must(other.right.read(into)), 4);
}

TEST(StreamLifetime, HalvesGoInAnyOrder) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    Streams pair(stream_builder().linger(10ms), stream_builder().linger(10ms));
    std::vector<std::shared_ptr<void>> halves;
    for (stream* const end : {&pair.left, &pair.right}) {
      auto [reader, writer] = std::move(*end).split();
      halves.push_back(std::make_shared<read_half>(std::move(reader)));
      halves.push_back(std::make_shared<write_half>(std::move(writer)));
    }
    std::ranges::shuffle(halves, std::mt19937(seed));
    for (auto& half : halves) half.reset();
  }
}

TEST(StreamRefusal, OfWrongNumbers) {
  Streams pair;
  EXPECT_THAT(pair.left.consume(1), IsRefused(kWrong, "stream::consume", "1 bytes, where 0 are"));
  EXPECT_THAT(pair.left.commit(1), IsRefused(kWrong, "stream::commit", "1 bytes, where 0 are"));
  std::array<std::byte, 4> into{};
  const auto none = pair.left.try_read_some(into);
  EXPECT_THAT(none, IsRefused(std::errc::operation_would_block, "stream", ""));
  pair.left.set_read_timeout(1ms);
  EXPECT_THAT(pair.left.read_some(into),
              IsRefused(std::errc::timed_out, "stream::read", "the time-out is over"));
  must(pair.left.shutdown());
  EXPECT_THAT(pair.left.write(bytes_of("text")),
              IsRefused(std::errc::broken_pipe, "stream::write", "was shut down"));
}

TEST(StreamRefusal, ATimeMayBeAsLongAsCanBeSaid) {
  constexpr auto kEver = std::chrono::milliseconds::max();
  Streams pair(
      stream_builder().keep_alive(kEver).linger(kEver).spin(std::chrono::microseconds::max()));
  pair.left.set_read_timeout(kEver);
  std::array<std::byte, 4> into{};
  for (int i = 0; i < 100; ++i) {
    must(pair.right.write(bytes_of("text")));
    EXPECT_EQ(must(pair.left.read(into)), 4);
  }
  const std::jthread other([&] { must(pair.right.close(kEver)); });
  must(pair.left.close(kEver));
}

TEST(StreamRefusal, OfOptions) {
  struct Row {
    stream_options options;
    const char* words;
  };
  const std::array rows{
      Row{{.buffer_size = 1}, "buffer_size is 1, not within 64"},
      Row{{.receives = 0}, "receives is 0, not within 1"},
      Row{{.sends = stream_options::max_receives + 1}, "sends is 16385, not within 1 and 16384"},
      Row{{.keep_alive = -1ms}, "a time is negative"},
      Row{{.linger = -1ms}, "a time is negative"},
  };
  const auto ctx = must(context::open("vrb0"));
  const auto pd = must(ctx.alloc_pd());
  for (const Row& row : rows)
    EXPECT_THAT(stream_builder(row.options).make_parts(ctx, pd),
                IsRefused(kWrong, "stream_builder", row.words));
}

}  // namespace
}  // namespace verbena::verbs
