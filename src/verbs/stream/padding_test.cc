// SPDX-License-Identifier: Apache-2.0
//
// Messages into a ring whose packets have one length, and padding behind them.

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

/// Two requests, of which the second has one packet.
TEST(StreamPadding, ALongMessageIsSplitIntoPacketsOfOneLength) {
  constexpr std::uint32_t kPacket = 4096;
  stream_options options = small(stream_transport::ring, 8);
  options.buffer_size = 96 << 10;
  options.send_buffer = 512 << 10;
  FakeEnd left(options);
  FakeEnd right(options);
  left.core.set_packet(kPacket);
  settle(left, right);
  std::uint64_t random = 1;
  int splits = 0;
  for (int i = 0; i < 300; ++i) {
    random = random * 6364136223846793005 + 1442695040888963407;
    const std::size_t size = i == 0 ? 64 << 10 : kPaddedFrom + (random >> 33) % (80 << 10);
    const std::string text(size, static_cast<char>('a' + i % 26));
    if (left.write(bytes_of(text)) != size) {  // at the end of a buffer or ring
      settle(left, right);
      (void)text_of(right);
      settle(left, right);
      continue;
    }
    left.pump();
    const Transmit sent = left.under_way.back();
    const std::uint32_t last = sent.length + sent.padding - sent.before;
    if (sent.before != 0) {
      ++splits;
      EXPECT_EQ(sent.before % (last + kOfImmediate), 0U);
      EXPECT_LE(last + kOfImmediate, kPacket);
      EXPECT_EQ(last % 4, 0U);
      EXPECT_EQ(parse_immediate(*sent.immediate)->before, sent.before / (last + kOfImmediate));
    }
    if (i == 0) {
      EXPECT_EQ(sent.before, 16U * 3856);
      EXPECT_EQ(sent.padding, 12U);
    }
    settle(left, right);
    EXPECT_EQ(text_of(right), text);
    settle(left, right);
  }
  EXPECT_GT(splits, 200);
  EXPECT_FALSE(right.core.failure());
  EXPECT_EQ(right.core.counters().bytes_received, left.core.counters().bytes_sent);
}

TEST(StreamPadding, WhatMayNotBeSplitIsOneRequest) {
  stream_options options = small(stream_transport::ring, 8);
  options.buffer_size = 96 << 10;
  options.send_buffer = 512 << 10;
  FakeEnd left(options);
  FakeEnd right(options);
  settle(left, right);
  const auto split = [&](std::size_t size, std::uint32_t packet, bool direct = false) {
    left.core.set_packet(packet);
    const std::string text(size, 'x');
    EXPECT_EQ(direct ? left.write_direct(bytes_of(text)) : left.write(bytes_of(text)), size);
    left.pump();
    const bool is = left.under_way.back().before != 0;
    settle(left, right);
    EXPECT_EQ(text_of(right), text);
    settle(left, right);
    return is;
  };
  constexpr std::size_t kLong = 32 << 10;
  EXPECT_TRUE(split(kLong, 4096));
  EXPECT_FALSE(split(kLong, 0)) << "how long packets are is not known";
  EXPECT_FALSE(split(kLong, 128)) << "more packets than an immediate tells of";
  EXPECT_FALSE(split(kLong, 472)) << "more padding";
  EXPECT_FALSE(split(kLong, kLong + 4)) << "it is one packet";
  EXPECT_FALSE(split(kPaddedFrom - 1, 4096)) << "it is short";
  EXPECT_FALSE(split(kLong, 4096, true)) << "it stays where it lies until it completes";
  EXPECT_TRUE(split(kLong, 4096));
}

/// As many as the send queue has been made for.
TEST(StreamPadding, HalfOfTheMessagesUnderWayMayBeSplit) {
  stream_options options = small(stream_transport::ring, 8);
  options.buffer_size = 32 << 10;
  options.send_buffer = 256 << 10;
  options.sends = 3;
  FakeEnd left(options);
  FakeEnd right(options);
  left.core.set_packet(4096);
  settle(left, right);
  const std::string text(20 << 10, 'x');
  const auto split = [&] {
    EXPECT_EQ(left.write(bytes_of(text)), text.size());
    left.pump();
    return left.under_way.back().before != 0;
  };
  EXPECT_TRUE(split());
  EXPECT_TRUE(split());
  EXPECT_FALSE(split());
  settle(left, right);
  EXPECT_TRUE(split());
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
