// SPDX-License-Identifier: Apache-2.0
#include "engine/key_table.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace verbena::engine {
namespace {

constexpr std::uint32_t kPd = 3;

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
  EXPECT_EQ(table.invalidate(region, kPd, 1).error(), MemoryError::kAccess);
  const std::uint32_t window =
      table.insert({.base = memory.data(), .length = memory.size(), .pd = kPd, .window = true})
          .value();
  EXPECT_EQ(table.invalidate(window, kPd + 1, 1).error(), MemoryError::kProtectionDomain);
  EXPECT_TRUE(table.invalidate(window, kPd, 1));
  EXPECT_EQ(table.lookup(window, 0, 1, 0, kPd).error(), MemoryError::kUnknownKey);
}

}  // namespace
}  // namespace verbena::engine
