// SPDX-License-Identifier: Apache-2.0
#include "link/icrc_check.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/random.h"
#include "link/testing.h"

namespace verbena::link {
namespace {

using testing::address;
using testing::OwnedTrain;

class IcrcCheckTest : public ::testing::TestWithParam<const char*> {
 protected:
  IcrcCheckTest() {
    path_.source = address(GetParam());
    path_.destination = address(GetParam());
    path_.source_port = 4791;
  }
  wire::Segment packet(std::uint16_t identification, std::uint16_t position,
                       std::uint32_t size = 100) {
    const OwnedTrain sent(path_, 5, psn_++, size, 1024);
    const wire::TrainPacket one = wire::packet_at(sent.train(), 0);
    auto& bytes = *bytes_.emplace_back(std::make_unique<std::vector<std::byte>>(one.wire_size()));
    wire::write_packet(sent.train(), one, identification, bytes);
    return {.datagram = bytes, .path = path_, .position = position, .identification = {}};
  }
  static bool holds(IcrcCheck& check, wire::Segment segment) {
    return check.filter(std::span(&segment, 1)) == 1;
  }
  [[nodiscard]] bool ipv4() const { return path_.source.is_ipv4(); }

  wire::Path path_{};
  std::uint32_t psn_ = 0;
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
};

INSTANTIATE_TEST_SUITE_P(Families, IcrcCheckTest, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& family) { return family.index == 0 ? "IPv4" : "IPv6"; });

TEST_P(IcrcCheckTest, TakesExpectedIdentifications) {
  IcrcCheck strict(IcrcCheck::Mode::kStrict);
  EXPECT_TRUE(holds(strict, packet(7, 7)));
  EXPECT_TRUE(holds(strict, packet(8, 0)));  // the previous one + 1
  EXPECT_TRUE(holds(strict, packet(0, 3)));
  EXPECT_TRUE(holds(strict, packet(1, 0)));
  EXPECT_EQ(strict.counters().good, 4U);
  EXPECT_EQ(strict.counters().solved, 0U);
}

TEST_P(IcrcCheckTest, ABatchMayBeOfSeveralSources) {
  IcrcCheck strict(IcrcCheck::Mode::kStrict);
  EXPECT_TRUE(holds(strict, packet(0, 0)));
  EXPECT_TRUE(holds(strict, packet(1, 1)));
  path_.source_port = 4792;
  EXPECT_TRUE(holds(strict, packet(2, 2)));
  EXPECT_TRUE(holds(strict, packet(3, 3)));
  path_.source_port = 4791;
  EXPECT_TRUE(holds(strict, packet(4, 4)));
  EXPECT_TRUE(holds(strict, packet(5, 0)));  // the previous one + 1
}

TEST_P(IcrcCheckTest, StrictTakesNoOther) {
  IcrcCheck strict(IcrcCheck::Mode::kStrict);
  EXPECT_TRUE(holds(strict, packet(0, 0)));
  EXPECT_EQ(holds(strict, packet(1000, 0)), !ipv4());
  EXPECT_TRUE(holds(strict, packet(9, 9)));
  EXPECT_EQ(holds(strict, packet(111, 0)), !ipv4());
}

// As a connected socket counts: each send has one more than the last, each segment its index more.
TEST_P(IcrcCheckTest, FollowsWhoCountsFromAnywhere) {
  IcrcCheck solve(IcrcCheck::Mode::kSolve);
  std::uint16_t first = 0xFFF0;
  const auto batch = [&](int packets) {
    for (int i = 0; i < packets; ++i)
      EXPECT_TRUE(holds(
          solve, packet(static_cast<std::uint16_t>(first + i), static_cast<std::uint16_t>(i))));
    ++first;
  };
  for (const int packets : {1, 1, 5, 3, 1, 60, 2}) batch(packets);
  EXPECT_EQ(solve.counters().solved, ipv4() ? 1U : 0U);
  for (int i = 0; i < 100; ++i) batch(3);  // by 0 too
  EXPECT_EQ(solve.counters().solved, ipv4() ? 1U : 0U);
  first = static_cast<std::uint16_t>(first + 7);  // what was lost
  for (int i = 0; i < 100; ++i) batch(2);
  EXPECT_EQ(solve.counters().solved, ipv4() ? 2U : 0U);
}

TEST_P(IcrcCheckTest, StrictLosesOnePacketBehindALongGap) {
  IcrcCheck strict(IcrcCheck::Mode::kStrict);
  for (const int number : {1000, 1001, 1002, 1003}) {
    EXPECT_TRUE(holds(strict, packet(static_cast<std::uint16_t>(number), 0)));
  }
  EXPECT_TRUE(holds(strict, packet(1004, 1)));
  EXPECT_TRUE(holds(strict, packet(1010, 0)));
  EXPECT_EQ(holds(strict, packet(1100, 0)), !ipv4());
  EXPECT_TRUE(holds(strict, packet(1101, 0)));
}

// As where processes take turns to read one socket, or packets overtake each other.
TEST_P(IcrcCheckTest, StrictTakesGapsAndDisorder) {
  IcrcCheck strict(IcrcCheck::Mode::kStrict);
  const auto number_is_taken = [&](int number) {
    return holds(strict, packet(static_cast<std::uint16_t>(number), 0));
  };
  for (int number = 5000; number < 5400; number += 2) EXPECT_TRUE(number_is_taken(number));
  for (int number = 5401; number < 5600; number += 2) {
    EXPECT_TRUE(number_is_taken(number));
    EXPECT_TRUE(number_is_taken(number - 1));
  }
}

TEST_P(IcrcCheckTest, StrictTakesSourcesThatForgetEachOther) {
  IcrcCheck strict(IcrcCheck::Mode::kStrict);
  // More of them than are remembered.
  for (std::uint16_t number = 7000; number < 7010; ++number) {
    for (std::uint16_t port = 40000; port < 40200; ++port) {
      path_.source_port = port;
      EXPECT_TRUE(holds(strict, packet(number, 0))) << port;
    }
  }
}

TEST_P(IcrcCheckTest, SolveTakesAny) {
  IcrcCheck solve(IcrcCheck::Mode::kSolve);
  EXPECT_TRUE(holds(solve, packet(0xBEEF, 0)));
  EXPECT_TRUE(holds(solve, packet(0xBEF0, 0)));
  EXPECT_EQ(solve.counters().solved, ipv4() ? 1U : 0U);
}

TEST_P(IcrcCheckTest, OneWrongBitIsFound) {
  for (const auto mode : {IcrcCheck::Mode::kStrict, IcrcCheck::Mode::kSolve}) {
    IcrcCheck check(mode);
    const wire::Segment good = packet(3, 3);
    for (std::size_t bit = 0; bit < good.datagram.size() * 8; ++bit) {
      if (bit / 8 == 4) continue;  // FECN, BECN and reserved bits are not covered
      auto& bytes = *bytes_.back();
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      EXPECT_FALSE(holds(check, good)) << bit;
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
    EXPECT_TRUE(holds(check, good));
    EXPECT_EQ(check.counters().good, 1U);
  }
}

TEST_P(IcrcCheckTest, CopiesOnTheWayWhatIsRightAndWhatIsWrong) {
  IcrcCheck check(IcrcCheck::Mode::kSolve);
  for (const bool wrong : {false, true}) {
    const wire::Segment segment = packet(3, 3);
    (*bytes_.back())[30] ^= static_cast<std::byte>(wrong);
    const std::size_t headers = wire::Bth::kSize + wire::Reth::kSize;
    const ConstBytes payload =
        segment.datagram.subspan(headers, segment.datagram.size() - headers - wire::kIcrcSize);
    std::vector<std::byte> to(payload.size() + 1, std::byte{0xA5});
    EXPECT_EQ(check.holds_copied(segment, headers, to.data()), !wrong);
    EXPECT_TRUE(std::ranges::equal(payload, std::span(to).first(payload.size())));
    EXPECT_EQ(to.back(), std::byte{0xA5});
  }
  EXPECT_EQ(check.counters().good, 1U);
  EXPECT_EQ(check.counters().bad, 1U);
}

TEST_P(IcrcCheckTest, AKnownIdentificationCountsAlone) {
  IcrcCheck solve(IcrcCheck::Mode::kSolve);
  wire::Segment segment = packet(500, 0);
  segment.identification = 500;
  EXPECT_TRUE(holds(solve, segment));
  segment.identification = 501;
  EXPECT_EQ(holds(solve, segment), !ipv4());
}

TEST_P(IcrcCheckTest, OffTakesEverythingWithRoomForAnIcrc) {
  IcrcCheck off(IcrcCheck::Mode::kOff);
  const std::vector<std::byte> junk(16);
  EXPECT_TRUE(holds(off, {.datagram = junk, .path = path_}));
  EXPECT_FALSE(holds(off, {.datagram = ConstBytes(junk).first(15), .path = path_}));
  EXPECT_FALSE(holds(off, {.datagram = {}, .path = path_}));
}

TEST_P(IcrcCheckTest, WhatHoldsKeepsItsOrder) {
  IcrcCheck check(IcrcCheck::Mode::kSolve);
  std::vector<wire::Segment> segments;
  for (std::uint16_t i = 0; i < 10; ++i) segments.push_back(packet(i, i));
  for (const std::size_t bad : {0U, 4U, 5U, 9U}) (*bytes_[bad])[20] ^= std::byte{1};
  const auto before = segments;
  ASSERT_EQ(check.filter(segments), 6U);
  const std::array<std::size_t, 6> expected{1, 2, 3, 6, 7, 8};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(segments[i].datagram.data(), before[expected[i]].datagram.data());
  EXPECT_EQ(check.counters().bad, 4U);
}

// Whoever compares packets anyway does not have it done again; what comes out is the same.
TEST_P(IcrcCheckTest, WhatIsLikeTheOneBeforeIsJudgedAsAny) {
  for (const auto mode :
       {IcrcCheck::Mode::kStrict, IcrcCheck::Mode::kSolve, IcrcCheck::Mode::kOff}) {
    Random random(11);
    IcrcCheck by_itself(mode);
    IcrcCheck by_the_one_before(mode);
    wire::Segment before{};
    int alike = 0;
    for (int round = 0; round < 4000; ++round) {
      path_.source_port = random.below(8) == 0 ? 4792 : 4791;
      const auto position = static_cast<std::uint16_t>(random.below(4));
      const auto off = random.below(8) == 0 ? random.below(1U << 16) : 0;
      const auto identification = static_cast<std::uint16_t>(position + off);
      wire::Segment segment = packet(identification, position, random.below(8) == 0 ? 200 : 100);
      segment.undamaged = random.below(8) == 0;
      if (random.below(8) == 0) segment.identification = identification;
      if (random.below(16) == 0) segment.datagram = segment.datagram.first(wire::Bth::kSize);
      if (random.below(8) == 0) bytes_.back()->back() ^= std::byte{1};
      const bool like =
          segment.datagram.size() == before.datagram.size() && segment.path == before.path;
      if (segment.datagram.size() > 100 && random.below(8) == 0) {
        std::array<std::byte, 200> to{};
        ASSERT_EQ(by_itself.holds_copied(segment, wire::Bth::kSize, to.data()),
                  by_the_one_before.holds_copied(segment, wire::Bth::kSize, to.data()));
      } else {
        alike += like ? 1 : 0;
        ASSERT_EQ(by_itself.holds(segment),
                  like ? by_the_one_before.holds_like(segment) : by_the_one_before.holds(segment))
            << round;
      }
      before = segment;
    }
    EXPECT_GT(alike, 1000);
    EXPECT_EQ(by_itself.counters().good, by_the_one_before.counters().good);
    EXPECT_EQ(by_itself.counters().solved, by_the_one_before.counters().solved);
    EXPECT_EQ(by_itself.counters().bad, by_the_one_before.counters().bad);
    EXPECT_NE(by_itself.counters().good, 0U);
    EXPECT_NE(by_itself.counters().bad, 0U);
  }
}

TEST_P(IcrcCheckTest, ManySourcesNeedNoMoreMemory) {
  IcrcCheck strict(IcrcCheck::Mode::kStrict);
  for (std::uint16_t port = 1; port < 5000; ++port) {
    path_.source_port = port;
    EXPECT_TRUE(holds(strict, packet(5, 5)));
    EXPECT_TRUE(holds(strict, packet(6, 0)));
  }
}

}  // namespace
}  // namespace verbena::link
