// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace verbena::verbs::streams {
namespace {

std::vector<std::byte> bytes_of(const Frame& frame) {
  std::array<std::byte, kMaxFrame> room{};
  const std::size_t size = write_frame(frame, room);
  return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(size)};
}

constexpr Hello kRing{.transport = stream_transport::ring,
                      .receives = 32,
                      .buffer_size = 131072,
                      .ring = remote_region(0x1000, 4 << 20, 0x77)};

TEST(StreamFrame, IsReadAsItWasWritten) {
  const Hello messages{
      .transport = stream_transport::messages, .receives = 1, .buffer_size = 64, .ring = {}};
  for (const Frame& frame :
       {Frame(kRing), Frame(messages), Frame(Credit{.messages = 7, .bytes = 1ULL << 40}),
        Frame(Fin()), Frame(Bye()), Frame(Leave())}) {
    const auto read = parse_frame(bytes_of(frame));
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, frame);
  }
}

TEST(StreamFrame, OfAnotherLengthIsRefused) {
  for (const Frame& frame :
       {Frame(kRing), Frame(Credit()), Frame(Fin()), Frame(Bye()), Frame(Leave())}) {
    const auto bytes = bytes_of(frame);
    for (std::size_t size = 0; size <= bytes.size() + 1; ++size) {
      std::vector<std::byte> other = bytes;
      other.resize(size);
      EXPECT_EQ(parse_frame(other).has_value(), size == bytes.size()) << size;
    }
  }
}

TEST(StreamFrame, AHostileHelloIsRefused) {
  struct Change {
    std::size_t at;
    std::uint8_t to;
    const char* says;
  };
  const Change changes[] = {{1, 0, "transport 0"},
                            {1, 3, "transport 3"},
                            {1, 1, "a ring with a transport of messages"},
                            {3, 2, "version 2"},
                            {4, 0, "where a stream has"},
                            {8, 0xff, "receives"},
                            {11, 0, "0 receives"},
                            {12, 0x80, "buffers of"},
                            {13, 0, "buffers of 0"},
                            {24, 0xff, "a ring"},
                            {29, 0, "a ring of 0"}};
  for (const Change& change : changes) {
    auto bytes = bytes_of(kRing);
    bytes[change.at] = static_cast<std::byte>(change.to);
    const auto read = parse_frame(bytes);
    ASSERT_FALSE(read) << change.says;
    EXPECT_EQ(read.error(), std::errc::protocol_error);
    EXPECT_THAT(read.error().message(), ::testing::HasSubstr(change.says));
  }
}

TEST(StreamFrame, AnImmediateOfDataIsReadAsItWasWrittenAndIsNoFrame) {
  for (const DataImmediate& immediate :
       {DataImmediate(), DataImmediate{.released = 0xffff},
        DataImmediate{.padding = kPadding, .released = 7}, DataImmediate{.before = 1, .padding = 1},
        DataImmediate{.before = 255, .padding = kMostPadding, .released = 0xffff}}) {
    EXPECT_NE(immediate.value(), kFrameImmediate);
    const auto read = parse_immediate(immediate.value());
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, immediate);
  }
  for (const std::uint32_t value : {kFrameImmediate, 0x00030000U, 0x00050000U, 0x00ff0000U})
    EXPECT_FALSE(parse_immediate(value)) << value;
}

TEST(StreamFrame, ZerosAreZero) {
  for (const Frame& frame : {Frame(Credit()), Frame(Fin()), Frame(Bye()), Frame(Leave())}) {
    auto bytes = bytes_of(frame);
    bytes[7] = std::byte{1};
    EXPECT_FALSE(parse_frame(bytes));
  }
}

}  // namespace
}  // namespace verbena::verbs::streams
