// SPDX-License-Identifier: Apache-2.0
// Padding behind messages of whole packets into a ring.

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

#include "verbs/stream/core.h"
#include "verbs/stream/test_network.h"

namespace verbena::verbs::streams {
namespace {

using testing::bytes_of;
using testing::FakeEnd;
using testing::settle;
using testing::small;
using testing::text_of;

/// The last packet of such a message would be longer than the others, and sent apart.
TEST(StreamPadding, AMessageOfWholePacketsIntoARingIsPadded) {
  stream_options options = small(stream_transport::ring, 2);
  options.buffer_size = 32 << 10;
  options.send_buffer = 64 << 10;
  FakeEnd left(options);
  FakeEnd right(options);
  settle(left, right);
  std::ranges::fill(right.ring, std::byte{0xff});
  const auto padding_of = [&](std::size_t size) {
    EXPECT_EQ(left.write(bytes_of(std::string(size, 'x'))), size);
    left.pump();
    const std::uint32_t padding = left.under_way.back().padding;
    settle(left, right);
    return padding;
  };
  constexpr std::size_t kLong = 16 << 10;
  EXPECT_EQ(padding_of(kLong), kPadding);
  EXPECT_EQ(right.ring[kLong + kPadding - 1], std::byte{0});
  EXPECT_EQ(right.ring[kLong + kPadding], std::byte{0xff});
  EXPECT_EQ(padding_of(kLong + 1), 0) << "its last packet is short";
  EXPECT_EQ(right.core.front()->size(), kLong) << "behind it is padding";
  EXPECT_EQ(text_of(right), std::string(2 * kLong + 1, 'x'));
  settle(left, right);
  EXPECT_EQ(padding_of(kLong - 256), 0) << "it is short itself";
  EXPECT_EQ(text_of(right).size(), kLong - 256);
  settle(left, right);
  EXPECT_EQ(left.core.room()->size(), (64 << 10) - 3 * kLong - kPadding - 1 + 256);
  EXPECT_EQ(padding_of(left.core.room()->size()), 0) << "at the end of the ring";
  EXPECT_EQ(padding_of(kLong - 1), 0);
  EXPECT_EQ(text_of(right).size(), 2 * kLong - kPadding - 2 + 256);
  settle(left, right);
  EXPECT_EQ(padding_of(kLong + 255), kPadding) << "the packets' own makes the last one a full one";
  EXPECT_EQ(right.core.counters().bytes_received, left.core.counters().bytes_sent);
}

/// The first one takes one byte of the ring and its padding, the others all the rest.
TEST(StreamPadding, TheOldestPaddedMessageMayBeReadToItsLastByte) {
  stream_options options = small(stream_transport::ring, 1);
  options.buffer_size = options.send_buffer = 32767;
  FakeEnd left(options);
  FakeEnd right(options);
  settle(left, right);
  const std::string first(16379, 'a');
  const std::string second(kPaddedFrom, 'b');
  const std::string third(kPaddedFrom, 'c');
  const auto write = [&](const std::string& text) {
    EXPECT_EQ(left.write(bytes_of(text)), text.size());
    settle(left, right);
  };
  write(first);
  write(second);
  std::string most(first.size() + second.size() - 1, '-');
  EXPECT_EQ(right.read(std::as_writable_bytes(std::span(most)).first(first.size())), first.size());
  EXPECT_EQ(right.read(std::as_writable_bytes(std::span(most)).subspan(first.size())),
            second.size() - 1);
  EXPECT_EQ(most, (first + second).substr(0, most.size()));
  settle(left, right);
  write(third);
  EXPECT_EQ(text_of(right), "b" + third);
  EXPECT_FALSE(right.core.failure());
}

TEST(StreamPadding, NothingIsPaddedWhereARequestHasOnePiece) {
  stream_options options = small(stream_transport::ring, 2);
  options.buffer_size = options.send_buffer = 32 << 10;
  FakeEnd left(options, false);
  FakeEnd right(options);
  settle(left, right);
  EXPECT_EQ(left.write(bytes_of(std::string(16 << 10, 'x'))), 16 << 10);
  left.pump();
  EXPECT_EQ(left.under_way.back().padding, 0);
}

}  // namespace
}  // namespace verbena::verbs::streams
