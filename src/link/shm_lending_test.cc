// SPDX-License-Identifier: Apache-2.0
//
// Payloads that stay with their sender until they are fetched.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "link/fetch_choice.h"
#include "link/test_shm.h"

namespace verbena::link {
namespace {

using testing::ShmLinkTest;

/// `b` fetches: both are this process.
class LendingTest : public ShmLinkTest {
 protected:
  static constexpr std::uint32_t kSegment = ShmChannel::kLendFrom;
  explicit LendingTest(std::shared_ptr<FetchChoice> choice = {})
      : ShmLinkTest(sys::getpid(), std::move(choice)) {}

  /// A message of so many packets that lies in one piece.
  wire::Train message(std::uint32_t packets, wire::Opcode middle = wire::Opcode::kRcSendMiddle) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i / 251);
    piece = ConstBytes(bytes).first(packets * std::size_t{kSegment});
    wire::Train train;
    train.path = &path;
    train.head.bth.opcode = static_cast<wire::Opcode>(static_cast<std::uint8_t>(middle) - 1);
    train.middle_opcode = middle;
    train.last_opcode = static_cast<wire::Opcode>(static_cast<std::uint8_t>(middle) + 1);
    train.count = packets;
    train.segment_size = kSegment;
    train.payload_size = packets * kSegment;
    train.gather = std::span(&piece, 1);
    return train;
  }
  /// What comes at once; their payloads may have stayed.
  std::vector<wire::Segment> receive(const wire::Train& train) {
    EXPECT_EQ(a.link->send(std::span(&train, 1), a.now), 1U);
    std::vector<wire::Segment> segments(64);
    segments.resize(b.link->receive(segments, b.now));
    return segments;
  }
  static std::size_t lent(const std::vector<wire::Segment>& segments) {
    return static_cast<std::size_t>(std::ranges::count_if(
        segments, [](const wire::Segment& segment) { return segment.lent != 0; }));
  }
  /// Of all that was lent, how many payloads come.
  std::size_t fetch(const std::vector<wire::Segment>& segments) {
    std::vector<wire::Segment> those;
    for (const wire::Segment& segment : segments) {
      if (segment.lent != 0) those.push_back(segment);
    }
    return those.empty() ? 0 : those.front().lender->fetch(those, fetched.data());
  }

  std::vector<std::byte> bytes = std::vector<std::byte>(std::size_t{20} * kSegment);
  std::vector<std::byte> fetched = std::vector<std::byte>(std::size_t{20} * kSegment);
  ConstBytes piece;
};

TEST_F(LendingTest, TheMiddleOfAMessageStaysUntilItIsFetched) {
  EXPECT_TRUE(a.link->lends(path));
  const auto segments = receive(message(20));
  ASSERT_EQ(segments.size(), 20U);
  EXPECT_EQ(lent(segments), 18U);
  EXPECT_EQ(segments.front().lent + segments.back().lent, 0U);
  EXPECT_EQ(fetch(segments), 18U);
  const auto middle = ConstBytes(bytes).subspan(kSegment, std::size_t{18} * kSegment);
  EXPECT_TRUE(std::ranges::equal(middle, ConstBytes(fetched).first(middle.size())));
}

TEST_F(LendingTest, WhatLiesApartIsFetchedAllTheSame) {
  auto segments = receive(message(20));
  std::ranges::reverse(segments);  // no two payloads lie behind each other
  EXPECT_EQ(fetch(segments), 18U);
  for (std::size_t i = 0; i < 18; ++i) {
    EXPECT_TRUE(std::ranges::equal(ConstBytes(fetched).subspan(i * kSegment, kSegment),
                                   ConstBytes(bytes).subspan((18 - i) * kSegment, kSegment)))
        << i;
  }
}

TEST_F(LendingTest, OnlyWhatIsLongAndAcknowledgedAndInOnePieceIsLent) {
  EXPECT_EQ(lent(receive(message(4, wire::Opcode::kRcWriteMiddle))), 2U);
  EXPECT_EQ(lent(receive(message(4, wire::Opcode::kRcReadResponseMiddle))), 0U);
  EXPECT_EQ(lent(receive(message(4, wire::Opcode::kUcSendMiddle))), 0U);
  wire::Train train = message(4);
  train.segment_size = kSegment - 4;
  train.payload_size = 4 * train.segment_size;
  EXPECT_EQ(lent(receive(train)), 0U);
  train = message(3);
  const ConstBytes all = piece;
  const std::array halves{all.first(all.size() / 2), all.subspan(all.size() / 2)};
  train.gather = halves;
  EXPECT_EQ(lent(receive(train)), 0U);
}

TEST_F(LendingTest, WhatIsRecalledIsLostAndWhatComesBehindItIsNot) {
  const auto before = receive(message(6));
  a.link->recall(static_cast<std::uint16_t>(path.channel + 1));
  EXPECT_EQ(fetch(before), 4U) << "another channel's";
  a.link->recall(path.channel);
  EXPECT_EQ(fetch(before), 0U);
  EXPECT_EQ(fetch(receive(message(6))), 4U);
  const auto again = receive(message(6));
  a.link->recall(0);
  EXPECT_EQ(fetch(again), 0U);
}

TEST_F(LendingTest, AMemoryThatCannotBeReadIsCopiedFromThenOn) {
  const std::size_t size = std::size_t{4} * kSegment;
  void* const pages =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  wire::Train train = message(4);
  piece = ConstBytes(static_cast<std::byte*>(pages), size);
  auto segments = receive(train);
  ::munmap(static_cast<std::byte*>(pages) + 2 * kSegment, 2 * kSegment);
  EXPECT_EQ(fetch(segments), 1U) << "as far as it is there";
  EXPECT_FALSE(a.link->lends(path));
  EXPECT_EQ(fetch(segments), 0U);
  EXPECT_EQ(lent(receive(message(4))), 0U);
  ::munmap(pages, size);
}

/// `b` fetches when that is the faster, as a clock has it that the test sets.
class ChoosingTest : public LendingTest {
 protected:
  ChoosingTest() : ChoosingTest(std::make_shared<Time>()) {}
  /// What a message takes to be placed, once what lies in the ring is known to be.
  void take(Duration ring, Duration fetch) {
    const auto segments = receive(message(18));
    *clock_ += lent(segments) != 0 ? fetch : ring;
    EXPECT_EQ(b.link->receive(std::span(place_), b.now), 0U);
  }
  [[nodiscard]] bool lends() { return a.link->lends(path); }
  /// Behind how many of 60 messages the writer is to lend, once the reader has seen some.
  [[nodiscard]] int lends_of_60(Duration ring, Duration fetch) {
    for (int i = 0; i < 20; ++i) take(ring, fetch);
    int lent = 0;
    for (int i = 0; i < 60; ++i) {
      take(ring, fetch);
      lent += lends() ? 1 : 0;
    }
    return lent;
  }

 private:
  explicit ChoosingTest(std::shared_ptr<Time> the_clock)
      : LendingTest(std::make_shared<FetchChoice>(
            [the_clock] { return *the_clock; },
            FetchChoice::Sizes{.span = 1, .turning = 1, .first_pause = 1, .longest_pause = 1})),
        clock_(std::move(the_clock)) {}

  std::shared_ptr<Time> clock_;
  std::array<wire::Segment, 1> place_{};
};

TEST_F(ChoosingTest, TheWriterHearsWhatTheReaderChooses) {
  using std::chrono::microseconds;
  EXPECT_FALSE(lends());
  EXPECT_GT(lends_of_60(microseconds(450), microseconds(80)), 20);
  EXPECT_LT(lends_of_60(microseconds(40), microseconds(80)), 40);
}

TEST_F(ChoosingTest, WhatDoesNotFitIsLentAllTheSame) {
  EXPECT_FALSE(lends());
  const wire::Train train = message(18);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(a.link->send(std::span(&train, 1), a.now), 1U) << i;
  std::vector<wire::Segment> segments(6 * 18);
  segments.resize(b.link->receive(segments, b.now));
  EXPECT_EQ(segments.size(), 6U * 18U);
  EXPECT_GT(lent(segments), 18U);
  EXPECT_LT(lent(segments), 4U * 18U);
}

TEST_F(LendingTest, NothingComesFromAProcessThatIsGone) {
  const auto segments = receive(message(4));
  a.link.reset();
  a.channels.reset();
  bells[0].reset();
  EXPECT_EQ(fetch(segments), 0U) << "another process may have its number";
}

TEST_F(LendingTest, WhatIsNotInTheMiddleIsNotTakenForLent) {
  const wire::Train train = message(3);
  ASSERT_EQ(a.link->send(std::span(&train, 1), a.now), 1U);
  // Behind the record of the first packet, and 32 bytes of its own.
  const std::size_t first = 64 + (kSegment + wire::kIcrcSize + 63) / 64 * 64;
  std::byte& opcode = raw.bytes()[131072 + first + 32];
  ASSERT_EQ(opcode, static_cast<std::byte>(wire::Opcode::kRcSendMiddle));
  opcode = static_cast<std::byte>(wire::Opcode::kRcSendOnly);
  std::array<wire::Segment, 4> segments;
  EXPECT_EQ(b.link->receive(segments, b.now), 2U);
}

}  // namespace
}  // namespace verbena::link
