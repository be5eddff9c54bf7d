// SPDX-License-Identifier: Apache-2.0
#include "engine/tag_list.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

namespace verbena::engine {
namespace {

constexpr std::uint32_t kPd = 7;
constexpr std::uint64_t kAll = ~std::uint64_t{0};

class TagListTest : public ::testing::Test {
 protected:
  TagListTest() { wqe.pieces.reserve(2); }

  std::uint32_t add(std::uint64_t id, std::uint64_t tag, std::uint64_t mask = kAll) {
    const auto handle = list.add({.id = id, .tag = tag, .mask = mask});
    EXPECT_TRUE(handle);
    return handle.value_or(0);
  }
  /// The receive that a message with the tag gets.
  std::optional<std::uint64_t> match(std::uint64_t tag) {
    if (!list.take(tag, wqe)) return std::nullopt;
    return wqe.id;
  }

  TagList list{4, 2, kPd};
  ReceiveWqe wqe;
};

TEST_F(TagListTest, AReceiveIsForWhatItsMaskLeavesOfATag) {
  add(1, 0x1200, 0xFF00);
  EXPECT_EQ(match(0x1300), std::nullopt);
  EXPECT_EQ(match(0xAB'12FF), 1U);
  EXPECT_EQ(match(0x1200), std::nullopt);  // a receive is for one message
}

TEST_F(TagListTest, ATagWithBitsBesideItsMaskMatchesNothing) {
  add(1, 0x1201, 0xFF00);
  EXPECT_EQ(match(0x1201), std::nullopt);
}

TEST_F(TagListTest, TheOneThatWasAddedFirstIsTaken) {
  add(1, 5);
  add(2, 0, 0);
  add(3, 6);
  EXPECT_EQ(match(6), 2U);
  EXPECT_EQ(match(6), 3U);
  EXPECT_EQ(match(5), 1U);
}

TEST_F(TagListTest, WhatIsTakenIsWhatWasAdded) {
  const std::array pieces{Sge{.address = 10, .length = 3, .lkey = 1},
                          Sge{.address = 20, .length = 4, .lkey = 2}};
  ASSERT_TRUE(list.add({.id = 9, .tag = 1, .mask = kAll, .pieces = pieces}));
  ASSERT_EQ(match(1), 9U);
  EXPECT_EQ(wqe.length, 7U);
  EXPECT_EQ(wqe.pd, kPd);
  ASSERT_EQ(wqe.pieces.size(), 2U);
  EXPECT_EQ(wqe.pieces[1].address, 20U);
}

TEST_F(TagListTest, AHandleFindsOneReceiveOnly) {
  const std::uint32_t first = add(1, 1);
  const std::uint32_t second = add(2, 2);
  EXPECT_TRUE(list.remove(first));
  EXPECT_FALSE(list.remove(first));
  const std::uint32_t third = add(3, 3);  // in the place of the first one
  EXPECT_NE(third, first);
  EXPECT_FALSE(list.remove(first));
  EXPECT_EQ(match(2), 2U);
  EXPECT_FALSE(list.remove(second));
  EXPECT_FALSE(list.remove(0xFFFF'FFFF));
  EXPECT_EQ(match(1), std::nullopt);
  EXPECT_EQ(match(3), 3U);
}

TEST_F(TagListTest, IsFullAtItsCapacity) {
  for (std::uint64_t i = 0; i < 4; ++i) add(i, i);
  EXPECT_EQ(list.add({.id = 4}).error().condition, std::errc::not_enough_memory);
  EXPECT_EQ(match(2), 2U);
  EXPECT_TRUE(list.add({.id = 4}));
}

TEST_F(TagListTest, PiecesHaveABound) {
  const std::array<Sge, 3> pieces{};
  EXPECT_EQ(list.add({.pieces = pieces}).error().condition, std::errc::invalid_argument);
  for (std::uint64_t i = 0; i < 4; ++i) add(i, i);  // nothing was used up
}

TEST_F(TagListTest, BehindAnUnexpectedMessageNewReceivesWait) {
  add(1, 1);
  list.note_unexpected();
  EXPECT_FALSE(list.in_step());
  add(2, 2);
  EXPECT_EQ(match(2), std::nullopt);
  EXPECT_EQ(match(1), 1U);  // it was there before, so the message was not for it
  list.sync(1);
  EXPECT_TRUE(list.in_step());
  EXPECT_EQ(match(2), 2U);
}

TEST_F(TagListTest, ACountThatIsNotTheListsKeepsThemWaiting) {
  list.note_unexpected();
  list.note_unexpected();
  add(1, 1);
  list.sync(1);
  EXPECT_FALSE(list.in_step());
  EXPECT_EQ(match(1), std::nullopt);
  list.sync(3);
  EXPECT_EQ(match(1), std::nullopt);
  list.sync(2);
  EXPECT_EQ(match(1), 1U);
}

TEST_F(TagListTest, OneThatWaitsCanBeRemoved) {
  add(1, 1);
  list.note_unexpected();
  const std::uint32_t waiting = add(2, 2);
  EXPECT_TRUE(list.remove(waiting));
  add(3, 3);
  list.sync(1);
  EXPECT_EQ(match(2), std::nullopt);
  EXPECT_EQ(match(3), 3U);
  EXPECT_EQ(match(1), 1U);
}

TEST_F(TagListTest, OneThatDoesNotWaitCanBeRemovedBeforeThoseThatDo) {
  const std::uint32_t first = add(1, 1);
  list.note_unexpected();
  add(2, 2);
  EXPECT_TRUE(list.remove(first));
  EXPECT_EQ(match(2), std::nullopt);
}

TEST_F(TagListTest, AMessageThatDoesNotArriveIsNotCounted) {
  list.note_unexpected();
  add(1, 1);
  list.forget_unexpected();
  EXPECT_TRUE(list.in_step());
  EXPECT_EQ(match(1), 1U);
}

}  // namespace
}  // namespace verbena::engine
