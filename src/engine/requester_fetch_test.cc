// SPDX-License-Identifier: Apache-2.0
//
// READs of memory that is not mapped here, which the kernel copies, and when it does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "engine/test_direct.h"

namespace verbena::engine::testing {
namespace {

/// The peer's memory is not mapped here, but can be fetched.
class Fetched : public Direct {
 protected:
  Fetched() {
    door_.allowed = 0;
    std::ranges::fill(b_.memory, std::byte{9});
  }
  void read(const std::vector<Sge>& pieces) {
    ASSERT_TRUE(a_.send({.id = 8,
                         .opcode = SendOpcode::kRead,
                         .signaled = true,
                         .remote_address = b_.address(10),
                         .rkey = b_.key},
                        pieces, now_));
  }
};

TEST_F(Fetched, AReadComesIntoItsPieces) {
  std::ranges::fill(a_.memory, std::byte{});
  read({a_.piece(0, 3), a_.piece(1000, 6)});
  EXPECT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.take().status, Status::kSuccess);
  EXPECT_EQ(std::ranges::count(a_.memory, std::byte{9}), 9);
  EXPECT_EQ(a_.memory[1005], std::byte{9});
  EXPECT_EQ(door_.fetched, std::vector<std::size_t>{2});
  EXPECT_EQ(a_.counters.bytes_received, 9U);
  EXPECT_EQ(a_.counters.direct_requests, 1U);
}

TEST_F(Fetched, ALongReadComesInParts) {
  std::ranges::fill(a_.memory, std::byte{});
  door_.most = 1 << 20;
  read({a_.piece(0, 1'000'000), a_.piece(1'000'000, 200'000)});
  while (a_.sent.completions.empty()) ASSERT_TRUE(turn(a_).empty());
  EXPECT_EQ(a_.sent.take().status, Status::kSuccess);
  EXPECT_EQ(std::ranges::count(a_.memory, std::byte{9}), 1'200'000);
  EXPECT_EQ(door_.fetched, (std::vector<std::size_t>{2, 1}));
}

TEST_F(Fetched, WhatIsNotToBeHadComesByPackets) {
  door_.fetches = false;
  std::ranges::fill(a_.memory, std::byte{});
  read({a_.piece(0, 3000)});
  deliver(b_, turn(a_));
  deliver(a_, turn(b_));
  EXPECT_EQ(a_.sent.take().status, Status::kSuccess);
  EXPECT_EQ(std::ranges::count(a_.memory, std::byte{9}), 3000);
  EXPECT_EQ(a_.counters.direct_requests, 0U);
  EXPECT_EQ(door_.fetched.size(), 1U);
}

TEST_F(Fetched, NothingIsWrittenWhereTheProgramMayNot) {
  auto foreign = a_.piece(0, 8);
  foreign.lkey += 256;
  read({a_.piece(1000, 8), foreign});
  EXPECT_TRUE(door_.fetched.empty());
  deliver(b_, turn(a_));
  deliver(a_, turn(b_));
  EXPECT_EQ(a_.sent.take().status, Status::kLocalProtectionError);
}

TEST_F(Fetched, OneValueIsNot) {
  read({a_.piece(0, 8)});
  EXPECT_EQ(turn(a_).size(), 1U) << "the kernel may bring half of it";
  EXPECT_TRUE(door_.fetched.empty());
}

TEST_F(Fetched, NorIsWhatIsTooLong) {
  door_.most = 100;
  read({a_.piece(0, 101)});
  EXPECT_EQ(turn(a_).size(), 1U);
  EXPECT_TRUE(door_.targets.empty());
}

TEST_F(Fetched, WhoIsGoneBehindTheCopyIsAskedByPackets) {
  door_.there = false;
  read({a_.piece(0, 3000)});
  EXPECT_EQ(turn(a_).size(), 1U);
  EXPECT_TRUE(a_.sent.completions.empty());
}

TEST_F(Fetched, PlacesAreThoseOfTheListOrNone) {
  const std::array<Sge, 3> pieces = {a_.piece(0, 10), a_.piece(100, 0), a_.piece(200, 20)};
  std::array<Bytes, 2> room;
  const auto places = [&](std::uint64_t offset, std::uint64_t size, std::size_t count) {
    return places_of(a_.keys, pieces, offset, size, End::kPd, std::span(room).first(count));
  };
  ASSERT_EQ(places(4, 11, 2).size(), 2U);
  EXPECT_EQ(room[0].data(), a_.memory.data() + 4);
  EXPECT_EQ(room[0].size(), 6U);
  EXPECT_EQ(room[1].data(), a_.memory.data() + 200);
  EXPECT_EQ(room[1].size(), 5U);
  EXPECT_EQ(places(12, 3, 1).size(), 1U);
  EXPECT_TRUE(places(4, 11, 1).empty()) << "no room for the second";
}

TEST_F(Fetched, WritesAreNot) {
  write(1, 3000);
  EXPECT_EQ(turn(a_).size(), 1U);
  EXPECT_TRUE(door_.fetched.empty());
}

}  // namespace
}  // namespace verbena::engine::testing
