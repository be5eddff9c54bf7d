// SPDX-License-Identifier: Apache-2.0
#include "nic/forwarding.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/bytes.h"
#include "nic/test_end.h"

namespace verbena::nic {
namespace {

using testing::address;

class ForwardingTest : public ::testing::Test {
 protected:
  std::unique_ptr<StrayBox> open(std::uint8_t slot) {
    return StrayBox::open(at_, SlotUse::kGeneral, slot, directory_, ledger_).value();
  }
  /// The number stands behind the headers.
  wire::Segment datagram(std::uint32_t number, std::size_t size = 280) {
    bytes_.assign(size, std::byte{0});
    store_be(bytes_.data() + 100, number);
    return {.datagram = bytes_, .path = {.source = address("10.0.0.9"), .destination = at_}};
  }
  static std::uint32_t number_of(const wire::Segment& segment) {
    return load_be<std::uint32_t>(segment.datagram.data() + 100);
  }
  /// All that is in a box, as numbers.
  static std::vector<std::uint32_t> take(StrayBox& box) {
    std::vector<std::uint32_t> numbers;
    std::array<wire::Segment, 64> segments;
    while (const std::size_t count = box.take(segments)) {
      for (const auto& segment : std::span(segments).first(count))
        numbers.push_back(number_of(segment));
    }
    return numbers;
  }

  const wire::Address at_ = address("127.77.22.1");
  ForkLedger ledger_;
  FabricDirectory directory_ = FabricDirectory::create(ledger_, at_).value();
  std::vector<std::byte> bytes_;
  Forwarding forwarding_;
  Time now_{std::chrono::seconds(1)};
};

TEST_F(ForwardingTest, WhatFindsNoRoomComesLaterInOrder) {
  const auto mine = open(1);
  const auto theirs = open(2);
  // More than a box holds while nobody looks.
  for (std::uint32_t i = 0; i < Forwarding::kMost; ++i) forwarding_.add(2, datagram(i));
  forwarding_.add(2, datagram(0xFFFFFFFF));  // lost
  std::vector<std::uint32_t> came;
  for (int rounds = 0; !forwarding_.empty() && rounds < 100; ++rounds) {
    forwarding_.flush(*mine, now_ += std::chrono::milliseconds(10));
    const auto some = take(*theirs);
    came.insert(came.end(), some.begin(), some.end());
  }
  ASSERT_EQ(came.size(), Forwarding::kMost);
  for (std::uint32_t i = 0; i < came.size(); ++i) ASSERT_EQ(came[i], i);
}

TEST_F(ForwardingTest, OneWithoutRoomKeepsNobodyWaiting) {
  const auto mine = open(1);
  const auto silent = open(2);
  const auto other = open(3);
  for (std::uint32_t i = 0; i < 1000; ++i) forwarding_.add(2, datagram(i));
  forwarding_.flush(*mine, now_);
  EXPECT_FALSE(forwarding_.empty());
  forwarding_.add(3, datagram(7));
  forwarding_.flush(*mine, now_ += std::chrono::milliseconds(10));
  EXPECT_EQ(take(*other), std::vector<std::uint32_t>{7});
}

TEST_F(ForwardingTest, WhatIsForNobodyComesBack) {
  const auto mine = open(1);
  forwarding_.add(5, datagram(1));
  forwarding_.add(5, datagram(2));
  forwarding_.flush(*mine, now_);
  std::array<wire::Segment, 64> segments;
  ASSERT_EQ(forwarding_.take_back(std::span(segments).first(1)), 1U);
  EXPECT_EQ(number_of(segments[0]), 1U);
  ASSERT_EQ(forwarding_.take_back(segments), 1U);
  EXPECT_EQ(number_of(segments[0]), 2U);
  EXPECT_EQ(forwarding_.take_back(segments), 0U);
  EXPECT_TRUE(forwarding_.empty());
}

TEST_F(ForwardingTest, WhatIsTooLargeIsLost) {
  forwarding_.add(2, datagram(1, StoredDatagram::kLargest + 1));
  EXPECT_TRUE(forwarding_.empty());
}

}  // namespace
}  // namespace verbena::nic
