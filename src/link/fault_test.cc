// SPDX-License-Identifier: Apache-2.0
#include "link/fault.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "link/testing_memory.h"

namespace verbena::link {
namespace {

using namespace std::chrono_literals;
using testing::ScriptedLink;

constexpr Time kStart{};

/// A datagram that tells its number, as an opcode's packet.
std::vector<std::byte> numbered(std::uint32_t number,
                                wire::Opcode opcode = wire::Opcode::kRcSendOnly,
                                std::size_t size = 32) {
  std::vector<std::byte> bytes(size, std::byte{0x5A});
  bytes[0] = static_cast<std::byte>(opcode);
  store_be(bytes.data() + 4, number);
  return bytes;
}

class FaultLinkTest : public ::testing::Test {
 protected:
  void make(std::string_view plan) {
    auto inner = std::make_unique<ScriptedLink>();
    inner_ = inner.get();
    link_ = std::make_unique<FaultLink>(std::move(inner), parse_fault_plan(plan).value(), &drops_);
    received_.clear();
  }
  void arrive(std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t i = first; i <= last; ++i)
      inner_->incoming.push_back({.bytes = numbered(i), .path = {}, .position = 0});
  }
  /// Takes what comes until nothing does, `span` at a time.
  void take_all(Time now, std::size_t span = 16) {
    std::vector<wire::Segment> segments(span);
    for (int i = 0; i < 10'000; ++i) {
      const std::size_t count = link_->receive(segments, now);
      for (const wire::Segment& segment : std::span(segments).first(count))
        received_.push_back({segment.datagram.begin(), segment.datagram.end()});
      if (count == 0 && inner_->incoming.empty()) return;
    }
    FAIL() << "no end";
  }
  [[nodiscard]] std::vector<std::uint32_t> numbers() const {
    std::vector<std::uint32_t> numbers;
    for (const auto& bytes : received_) numbers.push_back(load_be<std::uint32_t>(bytes.data() + 4));
    return numbers;
  }
  [[nodiscard]] std::uint64_t count(Fault fault) const {
    return link_->counters().faults[static_cast<std::size_t>(fault)];
  }

  ScriptedLink* inner_ = nullptr;
  Counter drops_;
  std::unique_ptr<FaultLink> link_;
  std::vector<std::vector<std::byte>> received_;
};

using Numbers = std::vector<std::uint32_t>;

TEST_F(FaultLinkTest, NoRulesNoFaults) {
  make("");
  arrive(1, 300);
  take_all(kStart, 7);
  ASSERT_EQ(received_.size(), 300U);
  EXPECT_TRUE(std::ranges::is_sorted(numbers()));
  EXPECT_EQ(link_->poll_timeout(), kNever);
}

TEST_F(FaultLinkTest, DropsByNumber) {
  make("drop@2,drop@4-5");
  arrive(1, 7);
  take_all(kStart);
  EXPECT_EQ(numbers(), (Numbers{1, 3, 6, 7}));
  EXPECT_EQ(count(Fault::kDrop), 3U);
}

TEST_F(FaultLinkTest, DropsByKindAndCountsOnlyThatKind) {
  make("drop:ack@2");
  for (std::uint32_t i = 1; i <= 6; ++i)
    inner_->incoming.push_back({.bytes = numbered(i, i % 2 == 0 ? wire::Opcode::kRcAcknowledge
                                                                : wire::Opcode::kRcSendOnly),
                                .path = {},
                                .position = 0});
  take_all(kStart);
  EXPECT_EQ(numbers(), (Numbers{1, 2, 3, 5, 6}));
}

TEST_F(FaultLinkTest, RatesHoldRoughly) {
  make("drop=10%,seed=3");
  arrive(1, 10'000);
  take_all(kStart);
  EXPECT_NEAR(static_cast<double>(received_.size()), 9000, 200);
}

TEST_F(FaultLinkTest, DuplicatesComeTwice) {
  make("duplicate@2-3");
  arrive(1, 4);
  for (const std::size_t span : {std::size_t{1}, std::size_t{16}}) {
    make("duplicate@2-3");
    arrive(1, 4);
    take_all(kStart, span);
    EXPECT_EQ(numbers(), (Numbers{1, 2, 2, 3, 3, 4}));
  }
}

TEST_F(FaultLinkTest, ReorderedOnesComeAfterFollowers) {
  make("reorder@3");
  arrive(1, 20);
  take_all(kStart);
  Numbers got = numbers();
  ASSERT_EQ(got.size(), 20U);
  const auto place = std::ranges::find(got, 3U) - got.begin();
  EXPECT_GT(place, 2);
  EXPECT_LE(place, 2 + static_cast<std::ptrdiff_t>(FaultLink::kReorderDistance));
  std::ranges::sort(got);
  EXPECT_EQ(std::ranges::unique(got).size(), 0U);
}

TEST_F(FaultLinkTest, AReorderedOneWithoutFollowersComesAfterAWhile) {
  make("reorder@1");
  arrive(1, 1);
  take_all(kStart);
  EXPECT_TRUE(received_.empty());
  ASSERT_EQ(link_->poll_timeout(), kStart + FaultLink::kReorderTime);
  take_all(kStart + FaultLink::kReorderTime - 1ns);
  EXPECT_TRUE(received_.empty());
  take_all(kStart + FaultLink::kReorderTime);
  EXPECT_EQ(numbers(), (Numbers{1}));
  EXPECT_EQ(link_->poll_timeout(), kNever);
}

TEST_F(FaultLinkTest, DelayedOnesComeInTheirTime) {
  make("delay@1,delay_time=5ms");
  arrive(1, 30);
  take_all(kStart);
  EXPECT_EQ(received_.size(), 29U);
  EXPECT_EQ(link_->poll_timeout(), kStart + 5ms);
  take_all(kStart + 5ms);
  EXPECT_EQ(numbers().back(), 1U);
}

TEST_F(FaultLinkTest, CorruptionFlipsOneBitOfACopy) {
  make("corrupt@2");
  arrive(1, 3);
  take_all(kStart);
  ASSERT_EQ(received_.size(), 3U);
  const auto clean = numbered(2);
  int bits = 0;
  for (std::size_t i = 0; i < clean.size(); ++i)
    bits += std::popcount(std::to_integer<unsigned>(clean[i] ^ received_[1][i]));
  EXPECT_EQ(bits, 1);
  EXPECT_EQ(received_[0], numbered(1));
  EXPECT_EQ(received_[2], numbered(3));
}

TEST_F(FaultLinkTest, TruncationTakesTheEnd) {
  make("truncate=100%,seed=9");
  arrive(1, 50);
  take_all(kStart);
  ASSERT_EQ(received_.size(), 50U);
  for (std::uint32_t i = 0; i < 50; ++i) {
    const auto whole = numbered(i + 1);
    ASSERT_LT(received_[i].size(), whole.size());
    EXPECT_TRUE(std::equal(received_[i].begin(), received_[i].end(), whole.begin()));
  }
}

TEST_F(FaultLinkTest, MarksCongestion) {
  make("mark@1");
  inner_->incoming.push_back(
      {.bytes = numbered(1), .path = {.traffic_class = 0x6A}, .position = 0});
  inner_->incoming.push_back(
      {.bytes = numbered(2), .path = {.traffic_class = 0x6A}, .position = 0});
  std::array<wire::Segment, 4> segments;
  ASSERT_EQ(link_->receive(segments, kStart), 2U);
  EXPECT_EQ(segments[0].path.traffic_class, 0x6B);
  EXPECT_EQ(segments[1].path.traffic_class, 0x6A);
}

TEST_F(FaultLinkTest, ACorruptOrHeldDuplicateKeepsItsBytes) {
  make("corrupt@1-40,duplicate@1-40,reorder@20-40");
  arrive(1, 40);
  take_all(kStart, 3);
  take_all(kStart + 1s, 3);
  ASSERT_EQ(received_.size(), 80U);
  for (std::uint32_t i = 1; i <= 40; ++i)
    EXPECT_NE(std::ranges::find(received_, numbered(i)), received_.end()) << i;
}

/// Zero would tell the caller that nothing has come.
TEST_F(FaultLinkTest, ALostBatchIsNotTheEnd) {
  make("drop@1-200");
  arrive(1, 203);
  std::array<wire::Segment, 64> segments;
  EXPECT_EQ(link_->receive(segments, kStart), 3U);
  EXPECT_EQ(link_->receive(segments, kStart), 0U);
}

/// What one call hands out is never overwritten by a batch that the same call fetches.
TEST_F(FaultLinkTest, ABatchOfWhichSomethingWasHandedOutIsTheLast) {
  make("drop@1-64,drop@66-128");
  arrive(1, 192);
  std::array<wire::Segment, 256> segments;
  EXPECT_EQ(link_->receive(segments, kStart), 1U);
  EXPECT_EQ(load_be<std::uint32_t>(segments[0].datagram.data() + 4), 65U);
  EXPECT_EQ(link_->receive(segments, kStart), 64U);
  make("delay@1-64,duplicate@64,delay_time=1ms");
  arrive(1, 128);
  EXPECT_EQ(link_->receive(segments, kStart), 1U);
  EXPECT_EQ(load_be<std::uint32_t>(segments[0].datagram.data() + 4), 64U);
}

/// A plan that loses everything does not keep a caller for as long as a flood lasts.
TEST_F(FaultLinkTest, AFloodThatIsLostEndsTheCall) {
  make("drop=100%");
  arrive(1, 10'000);
  std::array<wire::Segment, 64> segments;
  EXPECT_EQ(link_->receive(segments, kStart), 0U);
  EXPECT_FALSE(inner_->incoming.empty());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(link_->receive(segments, kStart), 0U);
  EXPECT_TRUE(inner_->incoming.empty());
  EXPECT_EQ(count(Fault::kDrop), 10'000U);
  EXPECT_EQ(drops_, 10'000U);
}

TEST_F(FaultLinkTest, StorageIsBounded) {
  make("delay=100%,delay_time=1ms");
  arrive(1, FaultLink::kMaxHeld + 10);
  take_all(kStart);
  EXPECT_EQ(link_->counters().overflows, 10U);
  EXPECT_EQ(drops_, 10U);
  take_all(kStart + 1ms);
  EXPECT_EQ(received_.size(), FaultLink::kMaxHeld);
  EXPECT_TRUE(std::ranges::is_sorted(numbers()));
}

TEST_F(FaultLinkTest, LargeDatagramsAreNeitherHeldNorCorrupted) {
  make("delay=100%,corrupt=100%");
  const auto large = numbered(1, wire::Opcode::kRcSendOnly, FaultLink::kMaxHeldSize + 1);
  inner_->incoming.push_back({.bytes = large, .path = {}, .position = 0});
  take_all(kStart);
  ASSERT_EQ(received_.size(), 1U);
  EXPECT_EQ(received_[0], large);
}

TEST_F(FaultLinkTest, TheSeedDecides) {
  const auto run = [&](const char* plan, std::size_t span) {
    make(plan);
    arrive(1, 2000);
    take_all(kStart, span);
    take_all(kStart + 1s, span);
    return received_;
  };
  constexpr const char* kPlan =
      "drop=5%,duplicate=5%,reorder=5%,delay=5%,corrupt=5%,truncate=5%,seed=11";
  const auto first = run(kPlan, 16);
  EXPECT_EQ(run(kPlan, 16), first);
  EXPECT_NE(run("drop=5%,duplicate=5%,reorder=5%,delay=5%,corrupt=5%,truncate=5%,seed=12", 16),
            first);
}

}  // namespace
}  // namespace verbena::link
