// SPDX-License-Identifier: Apache-2.0
#include "engine/key_table.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace verbena::engine {
namespace {

constexpr std::uint32_t kPd = 3;
constexpr KeyUser kUser{.pd = kPd, .qp_number = 77};
constexpr KeyUser kOther{.pd = kPd, .qp_number = 78};

class Keys : public ::testing::Test {
 protected:
  std::uint32_t add(std::uint64_t address, std::uint32_t access = kLocalWrite) {
    return table
        .insert({.base = memory.data(),
                 .address = address,
                 .length = memory.size(),
                 .access = access,
                 .pd = kPd})
        .value();
  }
  std::vector<std::byte> memory = std::vector<std::byte>(100);
  KeyTable table{8, 0x1234'5678'9ABC'DEF0};
};

TEST_F(Keys, FindTheirBytes) {
  const std::uint32_t key = add(5000);
  const auto found = table.lookup(key, 5010, 90, kLocalWrite, kPd);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->data(), memory.data() + 10);
  EXPECT_EQ(found->size(), 90u);
}

TEST_F(Keys, RangesNeverWrap) {
  for (const std::uint64_t address : {std::uint64_t{5000}, ~std::uint64_t{0} - 99}) {
    const std::uint32_t key = add(address);
    EXPECT_TRUE(table.lookup(key, address, 100, 0, kPd));
    EXPECT_EQ(table.lookup(key, address, 101, 0, kPd).error(), MemoryError::kRange);
    EXPECT_EQ(table.lookup(key, address + 1, 100, 0, kPd).error(), MemoryError::kRange);
    EXPECT_EQ(table.lookup(key, address - 1, 1, 0, kPd).error(), MemoryError::kRange);
    EXPECT_EQ(table.lookup(key, address + 50, ~std::uint64_t{0}, 0, kPd).error(),
              MemoryError::kRange);
    EXPECT_EQ(table.lookup(key, address - 50, ~std::uint64_t{0}, 0, kPd).error(),
              MemoryError::kRange);
  }
}

TEST_F(Keys, OfNothingReadAsZerosAndLoseWhatIsWritten) {
  std::vector<std::byte> sink(kSinkSize);
  const std::uint32_t key = table
                                .insert({.base = memory.data(),
                                         .length = memory.size(),
                                         .access = kLocalWrite,
                                         .pd = kPd,
                                         .sink = sink.data()})
                                .value();
  EXPECT_EQ(table.lookup(key, ~std::uint64_t{0}, 100, kLocalRead, kPd)->data(), memory.data());
  EXPECT_EQ(table.lookup(key, 7, 100, kLocalWrite, kPd)->data(), sink.data());
  EXPECT_EQ(table.lookup(key, 7, 101, kLocalRead, kPd).error(), MemoryError::kRange);
  EXPECT_EQ(table.lookup(key, 7, 8, kLocalRead, kPd + 1).error(), MemoryError::kProtectionDomain);
  EXPECT_EQ(table.lookup_remote(key, 0, 8, kRemoteRead, kUser).error(), MemoryError::kAccess);
}

TEST_F(Keys, MoreThanTheSinkIsNeverWritten) {
  std::vector<std::byte> zeros(kSinkSize + 1);
  std::byte sink{};
  const std::uint32_t key = table
                                .insert({.base = zeros.data(),
                                         .length = zeros.size(),
                                         .access = kLocalWrite,
                                         .pd = kPd,
                                         .sink = &sink})
                                .value();
  // What is there must not be written, which the processor sees to.
  EXPECT_EQ(table.lookup(key, 0, kSinkSize + 1, kLocalWrite, kPd)->data(), zeros.data());
  EXPECT_EQ(table.lookup(key, 0, kSinkSize, kLocalWrite, kPd)->data(), &sink);
}

TEST_F(Keys, SayWhatTheyStandFor) {
  const std::uint32_t key = add(5000, kLocalWrite | kOnDemand);
  ASSERT_TRUE(table.describe(key));
  EXPECT_EQ(table.describe(key)->access, std::uint32_t{kLocalWrite | kOnDemand});
  EXPECT_FALSE(table.describe(key ^ 1));
  EXPECT_FALSE(table.describe(0));
  EXPECT_TRUE(table.erase(key));
  EXPECT_FALSE(table.describe(key));
}

TEST_F(Keys, RightsAndProtectionDomain) {
  const std::uint32_t key = add(0, kLocalWrite | kRemoteRead);
  EXPECT_TRUE(table.lookup(key, 0, 1, kLocalWrite | kRemoteRead, kPd));
  EXPECT_EQ(table.lookup(key, 0, 1, kRemoteWrite, kPd).error(), MemoryError::kAccess);
  EXPECT_EQ(table.lookup(key, 0, 1, kRemoteRead | kRemoteAtomic, kPd).error(),
            MemoryError::kAccess);
  EXPECT_EQ(table.lookup(key, 0, 1, 0, kPd + 1).error(), MemoryError::kProtectionDomain);
}

TEST_F(Keys, StaleOnesAreRefusedEvenWhenTheEntryIsUsedAgain) {
  std::set<std::uint32_t> seen;
  for (int round = 0; round < 100; ++round) {
    const std::uint32_t key = add(0);
    EXPECT_NE(key, 0u);
    EXPECT_TRUE(seen.insert(key).second);
    EXPECT_TRUE(table.erase(key));
    EXPECT_FALSE(table.erase(key));
    EXPECT_EQ(table.lookup(key, 0, 1, 0, kPd).error(), MemoryError::kUnknownKey);
    table.reclaim(key);
  }
  for (const std::uint32_t key : seen) EXPECT_FALSE(table.lookup(key, 0, 1, 0, kPd));
}

TEST_F(Keys, TableHasALimit) {
  for (int i = 0; i < 8; ++i) add(0);
  EXPECT_EQ(table.insert({}).error().condition, std::errc::not_enough_memory);
  EXPECT_EQ(table.size(), 8u);
}

TEST_F(Keys, OnlyWindowsCanBeInvalidated) {
  const std::uint32_t region = add(0);
  EXPECT_EQ(table.invalidate(region, kUser).error(), MemoryError::kAccess);
}

/// A window, and a region that windows may be bound to.
class Windows : public Keys {
 protected:
  static constexpr std::uint32_t kRights =
      kLocalWrite | kRemoteRead | kRemoteWrite | kRemoteAtomic | kWindowBind;

  std::uint32_t window(WindowType type) {
    return table.insert({.pd = kPd, .window = type}).value();
  }
  [[nodiscard]] WindowBinding binding(std::uint32_t key) const {
    return {.key = key,
            .region_key = region,
            .address = 5010,
            .length = 20,
            .access = kRemoteRead | kRemoteWrite};
  }
  [[nodiscard]] MemoryError error_of(std::uint32_t key, std::uint64_t address = 5010,
                                     std::uint32_t access = kRemoteRead,
                                     const KeyUser& user = kUser) const {
    return table.lookup_remote(key, address, 1, access, user).error();
  }

  std::uint32_t region = add(5000, kRights);
};

TEST_F(Windows, OpenAPartOfARegionToPeersOnly) {
  const std::uint32_t key = window(WindowType::kType1);
  EXPECT_EQ(error_of(key), MemoryError::kAccess);  // nothing yet
  ASSERT_TRUE(table.bind(binding(key + 1), kUser));
  EXPECT_EQ(error_of(key), MemoryError::kUnknownKey);
  const auto found = table.lookup_remote(key + 1, 5012, 18, kRemoteRead | kRemoteWrite, kOther);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->data(), memory.data() + 12);
  EXPECT_EQ(error_of(key + 1, 5030), MemoryError::kRange);
  EXPECT_EQ(error_of(key + 1, 5009), MemoryError::kRange);
  EXPECT_EQ(error_of(key + 1, 5010, kRemoteAtomic), MemoryError::kAccess);
  EXPECT_EQ(error_of(key + 1, 5010, 0, {.pd = kPd + 1}), MemoryError::kProtectionDomain);
  EXPECT_EQ(table.lookup(key + 1, 5010, 1, 0, kPd).error(), MemoryError::kAccess);
}

TEST_F(Windows, OfType1AreBoundAnewAndUnbound) {
  const std::uint32_t key = window(WindowType::kType1);
  ASSERT_TRUE(table.bind(binding(key), kUser));
  EXPECT_TRUE(table.has_windows(region));
  WindowBinding another = binding(key ^ 1);
  another.address = 5050;
  another.access |= kZeroBased;
  ASSERT_TRUE(table.bind(another, kUser));
  EXPECT_EQ(table.lookup_remote(key ^ 1, 3, 1, kRemoteRead, kUser)->data(), memory.data() + 53);
  EXPECT_EQ(table.invalidate(key ^ 1, kUser).error(), MemoryError::kAccess);
  another.length = 0;
  another.region_key = 0;
  ASSERT_TRUE(table.bind(another, kUser));
  EXPECT_EQ(error_of(key ^ 1, 0), MemoryError::kAccess);
  EXPECT_FALSE(table.has_windows(region));
}

TEST_F(Windows, OfType2AreForOneQueuePairAndCanBeInvalidated) {
  const std::uint32_t key = window(WindowType::kType2);
  EXPECT_EQ(table.invalidate(key, kUser).error(), MemoryError::kAccess);
  ASSERT_TRUE(table.bind(binding(key), kUser));
  EXPECT_TRUE(table.lookup_remote(key, 5010, 20, kRemoteRead, kUser));
  EXPECT_EQ(error_of(key, 5010, kRemoteRead, kOther), MemoryError::kAccess);
  EXPECT_EQ(table.bind(binding(key ^ 1), kUser).error(), MemoryError::kAccess);
  EXPECT_EQ(table.invalidate(key, kOther).error(), MemoryError::kAccess);
  ASSERT_TRUE(table.invalidate(key, kUser));
  EXPECT_EQ(error_of(key), MemoryError::kUnknownKey);
  EXPECT_EQ(table.invalidate(key, kUser).error(), MemoryError::kUnknownKey);
  ASSERT_TRUE(table.bind(binding(key ^ 1), kOther));
  EXPECT_TRUE(table.lookup_remote(key ^ 1, 5010, 20, kRemoteRead, kOther));
}

TEST_F(Windows, WrongBindingsAreRefused) {
  const std::uint32_t key = window(WindowType::kType1);
  const auto error_with = [&](auto change) {
    WindowBinding wrong = binding(key);
    change(wrong);
    return table.bind(wrong, kUser).error();
  };
  EXPECT_EQ(error_with([&](auto& b) { b.key = region; }), MemoryError::kUnknownKey);
  EXPECT_EQ(error_with([&](auto& b) { b.region_key ^= 1; }), MemoryError::kUnknownKey);
  EXPECT_EQ(error_with([&](auto& b) { b.region_key = key; }), MemoryError::kAccess);
  EXPECT_EQ(error_with([&](auto& b) { b.length = 91; }), MemoryError::kRange);
  EXPECT_EQ(error_with([&](auto& b) { b.address = 4999; }), MemoryError::kRange);
  EXPECT_EQ(error_with([&](auto& b) { b.region_key = add(5000, kLocalWrite); }),
            MemoryError::kAccess);
  EXPECT_EQ(error_with([&](auto& b) { b.region_key = add(5000, kWindowBind); }),
            MemoryError::kAccess);
  EXPECT_EQ(table.bind(binding(key), {.pd = kPd + 1}).error(), MemoryError::kProtectionDomain);
}

TEST_F(Windows, NoLowByteMakesTheirKeyNone) {
  ASSERT_EQ(region >> 8, 0u);  // the entry in question, free from here on
  ASSERT_TRUE(table.erase(region));
  table.reclaim(region);
  for (std::size_t i = table.size(); i + 1 < 8; ++i) EXPECT_NE(window(WindowType::kType1) >> 8, 0u);
  EXPECT_FALSE(table.insert({.pd = kPd, .window = WindowType::kType2}));
  EXPECT_EQ(add(0) >> 8, 0u);  // a region takes the entry
}

TEST_F(Windows, LeaveTheirRegionWhenTheyGo) {
  const std::uint32_t key = window(WindowType::kType2);
  ASSERT_TRUE(table.bind(binding(key ^ 1), kUser));
  EXPECT_TRUE(table.erase(key));
  EXPECT_FALSE(table.has_windows(region));
  EXPECT_EQ(error_of(key ^ 1), MemoryError::kUnknownKey);
  EXPECT_FALSE(table.bind(binding(key), kUser));
}

// The next owner of the entry gets none of the numbers that the window had last.
TEST_F(Windows, TheirLastKeyIsNotTheNextOnesFirst) {
  const std::uint32_t key = window(WindowType::kType1);
  ASSERT_TRUE(table.bind(binding(key + 1), kUser));
  ASSERT_TRUE(table.erase(key));
  table.reclaim(key);
  std::uint32_t next = add(0);
  while (next >> 8 != key >> 8) next = add(0);
  EXPECT_NE(next, key + 1);
}

}  // namespace
}  // namespace verbena::engine
