// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/pool/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbena::verbs::streams {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Books = Ledger<int>;
const Books::Time kStart{1h};

const stream_pool_options kOptions{.max_open = 3,
                                   .max_open_per_peer = 2,
                                   .max_idle_per_peer = 2,
                                   .idle_timeout = 10s,
                                   .max_age = 60s};

std::vector<int> numbers(const std::vector<Books::Kept>& of) {
  std::vector<int> all;
  for (const auto& kept : of) all.push_back(kept.one);
  return all;
}

/// One that had a place comes back.
std::vector<int> bring(Books& books, std::size_t peer, int one, Books::Time now,
                       Books::Time opened = kStart) {
  Books::Waiting who{.peer = peer};
  books.enter(who);
  EXPECT_EQ(books.serve(), &who);
  return numbers(books.give_back(peer, {.one = one, .opened = opened}, now));
}

TEST(Ledger, PlacesGoInTheOrderOfTheLine) {
  Books books(1, kOptions);
  std::array<Books::Waiting, 5> who{};
  for (auto& one : who) books.enter(one);
  EXPECT_EQ(books.serve(), who.data());
  EXPECT_EQ(books.serve(), &who[1]);
  EXPECT_EQ(books.serve(), nullptr);
  EXPECT_EQ(books.waiting(), 3U);
  books.leave(who[2]);
  books.free_place(0);
  EXPECT_EQ(books.serve(), &who[3]);
  EXPECT_EQ(books.serve(), nullptr);
  EXPECT_TRUE(who[3].has_place);
  EXPECT_FALSE(who[4].has_place);
  EXPECT_EQ(books.places(), 2U);
}

TEST(Ledger, APeerThatHasAllItMayIsPassedOver) {
  Books books(2, kOptions);
  std::array<Books::Waiting, 3> busy{};
  Books::Waiting other{.peer = 1};
  for (auto& one : busy) books.enter(one);
  books.enter(other);
  EXPECT_EQ(books.serve(), busy.data());
  EXPECT_EQ(books.serve(), &busy[1]);
  EXPECT_EQ(books.serve(), &other);
  EXPECT_EQ(books.serve(), nullptr);
  // The pool is full: the one who waited longer is the next, whichever place is freed.
  Books::Waiting late{.peer = 1};
  books.enter(late);
  books.free_place(0);
  EXPECT_EQ(books.serve(), &busy[2]);
  EXPECT_EQ(books.serve(), nullptr);
  EXPECT_EQ(books.places(0), 2U);
  EXPECT_EQ(books.places(1), 1U);
}

TEST(Ledger, TheLastThatCameBackIsTheNext) {
  Books books(2, kOptions);
  EXPECT_FALSE(books.take(0));
  EXPECT_THAT(bring(books, 0, 1, kStart), IsEmpty());
  EXPECT_THAT(bring(books, 0, 2, kStart + 1s), IsEmpty());
  EXPECT_EQ(books.idle(), 2U);
  EXPECT_EQ(books.places(), 0U);
  EXPECT_FALSE(books.take(1));
  EXPECT_FALSE(books.take(0, kStart + 1s));
  EXPECT_EQ(books.take(0, kStart)->one, 2);
  EXPECT_EQ(books.take(0)->one, 1);
  EXPECT_EQ(books.idle(), 0U);
}

TEST(Ledger, MoreThanMayBeIdleGoes) {
  Books books(1, kOptions);
  bring(books, 0, 1, kStart);
  bring(books, 0, 2, kStart);
  EXPECT_THAT(bring(books, 0, 3, kStart), ElementsAre(1));
  EXPECT_EQ(books.idle(), 2U);
  auto none = kOptions;
  none.max_idle_per_peer = 0;
  Books empty(1, none);
  EXPECT_THAT(bring(empty, 0, 4, kStart), ElementsAre(4));
  EXPECT_EQ(empty.idle(), 0U);
}

TEST(Ledger, WhatIsIdleOrOldForTooLongGoes) {
  Books books(2, kOptions);
  bring(books, 0, 1, kStart);
  bring(books, 0, 2, kStart + 5s);
  bring(books, 1, 3, kStart + 7s, kStart - 51s);
  EXPECT_THAT(books.expire(kStart + 8s), IsEmpty());
  EXPECT_THAT(numbers(books.expire(kStart + 9s)), ElementsAre(3));  // of age
  EXPECT_THAT(numbers(books.expire(kStart + 10s)), ElementsAre(1));
  EXPECT_EQ(books.idle(), 1U);
  EXPECT_EQ(books.take(0)->one, 2);
  EXPECT_THAT(bring(books, 0, 4, kStart + 60s), ElementsAre(4));  // too old as it comes back
}

TEST(Ledger, ATimeOfZeroIsForEver) {
  auto options = kOptions;
  options.idle_timeout = options.max_age = 0ms;
  Books books(1, options);
  bring(books, 0, 1, kStart);
  EXPECT_THAT(books.expire(kStart + 10'000h), IsEmpty());
  EXPECT_THAT(numbers(books.take_all()), ElementsAre(1));
  EXPECT_EQ(books.idle(), 0U);
}

TEST(Ledger, WhatIsIdleMakesRoom) {
  Books books(3, kOptions);
  bring(books, 0, 1, kStart + 1s);
  bring(books, 1, 2, kStart);
  Books::Waiting one{.peer = 2};
  books.enter(one);
  EXPECT_EQ(books.serve(), &one);
  EXPECT_FALSE(books.make_room());  // three are open with it
  Books::Waiting two{.peer = 2};
  books.enter(two);
  EXPECT_EQ(books.serve(), &two);
  EXPECT_EQ(books.make_room()->one, 2);  // idle for longest
  EXPECT_FALSE(books.make_room());
  EXPECT_EQ(books.idle(), 1U);
}

}  // namespace
}  // namespace verbena::verbs::streams
