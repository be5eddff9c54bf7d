// SPDX-License-Identifier: Apache-2.0
#include "verbena/buffer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "verbs/test_pair.h"

namespace verbena::verbs {
namespace {

using testing::End;
using testing::fill;
using testing::must;
using testing::Pair;

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(BufferPool, ABufferIsOfTheSmallestClassThatFits) {
  const End end("vrb0");
  const buffer_pool pool = must(buffer_pool::create(end.pd, {.smallest = 256}));
  EXPECT_EQ(pool.counters().registered, 0);
  const pooled_slice small = must(pool.get(1));
  EXPECT_EQ(small.size(), 1);
  EXPECT_EQ(pool.counters().in_use, 256);
  const pooled_slice odd = must(pool.get(257));
  EXPECT_EQ(odd.bytes().size(), 257);
  EXPECT_EQ(pool.counters().in_use, 256 + 512);
  const pooled_slice largest = must(pool.get(kMiB));
  EXPECT_EQ(pool.counters().buffers, 3);
  EXPECT_EQ(pool.counters().registered, 3 * 2 * kMiB);
  EXPECT_EQ(pool.get(0).error(), std::errc::invalid_argument);
  EXPECT_EQ(pool.get(kMiB + 1).error(), std::errc::invalid_argument);
}

TEST(BufferPool, HugePagesAreCountedAndNotTakenWhereTheyAreNotWanted) {
  const End end("vrb0");
  for (const bool wanted : {true, false}) {
    const buffer_pool pool = must(buffer_pool::create(end.pd, {.huge_pages = wanted}));
    const pooled_slice one = must(pool.get(kMiB));
    fill(one.bytes(), 'h');
    const buffer_pool_counters now = pool.counters();
    EXPECT_EQ(now.registered, 2 * kMiB);
    // Whether the machine has any left, nobody knows: all of it or nothing.
    EXPECT_TRUE(now.huge == 0 || (wanted && now.huge == now.registered)) << now.huge;
  }
}

TEST(BufferPool, ABufferComesBackWithItsLastSlice) {
  const End end("vrb0");
  const buffer_pool pool = must(buffer_pool::create(end.pd));
  pooled_slice whole = must(pool.get(4096));
  std::byte* const where = whole.bytes().data();
  pooled_slice part = must(whole.slice(100, 50));
  pooled_slice copy = part;
  EXPECT_EQ(part.bytes().data(), where + 100);
  EXPECT_EQ(whole.slice(4000, 97).error(), std::errc::result_out_of_range);
  whole = pooled_slice();
  part = pooled_slice();
  EXPECT_EQ(pool.counters().buffers, 1);
  EXPECT_EQ(copy.bytes().data(), where + 100);
  { const pooled_slice moved = std::move(copy); }
  EXPECT_EQ(pool.counters().buffers, 0);
  EXPECT_EQ(must(pool.get(1000)).bytes().data(), where);
}

TEST(BufferPool, HasALimitAndGoesOnBehindIt) {
  const End end("vrb0");
  const buffer_pool pool =
      must(buffer_pool::create(end.pd, {.largest = kMiB, .limit = 3 * kMiB + 4096}));
  std::vector<pooled_slice> held;
  for (int i = 0; i < 3; ++i) held.push_back(must(pool.get(kMiB)));
  EXPECT_EQ(pool.get(kMiB).error(), std::errc::no_buffer_space);
  const pooled_slice small = must(pool.get(4096));
  EXPECT_EQ(pool.get(4096).error(), std::errc::no_buffer_space);
  held.pop_back();
  EXPECT_TRUE(pool.get(kMiB));
  // A larger one where there are no more of its size.
  const pooled_slice larger = must(pool.get(4096));
  EXPECT_EQ(larger.size(), 4096);
  EXPECT_EQ(pool.counters().in_use, 3 * kMiB + 4096);
}

TEST(BufferPool, RefusesOptionsThatDoNotFit) {
  const End end("vrb0");
  for (const buffer_pool_options& options :
       {buffer_pool_options{.smallest = 3000}, buffer_pool_options{.largest = 3 * kMiB},
        buffer_pool_options{.smallest = 2 * kMiB}, buffer_pool_options{.limit = 4096},
        buffer_pool_options{.step = 0}, buffer_pool_options{.rights = access::zero_based}})
    EXPECT_EQ(buffer_pool::create(end.pd, options).error(), std::errc::invalid_argument);
}

TEST(BufferPool, OutlivesNothingThatIsInUse) {
  pooled_slice slice;
  EXPECT_FALSE(slice);
  {
    End end("vrb0");
    const buffer_pool pool = must(buffer_pool::create(end.pd));
    slice = must(pool.get(64));
    EXPECT_EQ(end.pd.close().error(), std::errc::device_or_resource_busy);
  }
  fill(slice.bytes(), 'x');
  EXPECT_TRUE(slice.remote());
  const pooled_slice taken = std::move(slice);
  // NOLINTBEGIN(bugprone-use-after-move): what it then says is what is tested
  EXPECT_FALSE(slice);
  EXPECT_TRUE(slice.bytes().empty());
  EXPECT_EQ(slice.slice(0, 0).error(), std::errc::bad_file_descriptor);
  EXPECT_EQ(slice.remote().error(), std::errc::bad_file_descriptor);
  // NOLINTEND(bugprone-use-after-move)
}

TEST(BufferPool, APoolThatWasMovedFromReports) {
  const End end("vrb0");
  buffer_pool pool = must(buffer_pool::create(end.pd));
  const buffer_pool taken = std::move(pool);
  // NOLINTNEXTLINE(bugprone-use-after-move): what it then says is what is tested
  EXPECT_EQ(pool.get(1).error(), std::errc::bad_file_descriptor);
}

TEST(BufferPool, SlicesAreRegistered) {
  const Pair<rc> pair;
  const buffer_pool from =
      must(buffer_pool::create(pair.left.pd, {.rights = access::local_write, .huge_pages = false}));
  const buffer_pool to = must(buffer_pool::create(pair.right.pd));
  const pooled_slice here = must(must(from.get(300)).slice(100, 200));
  const pooled_slice there = must(must(to.get(1000)).slice(500, 200));
  fill(here.bytes(), 'p');
  EXPECT_EQ(here.remote().error(), std::errc::permission_denied);
  must(pair.left_qp.write(here.slice(), must(there.remote())));
  EXPECT_TRUE(pair.left.next().ok());
  testing::settle(pair.right.pd);
  EXPECT_EQ(there.bytes().front(), std::byte{'p'});
  EXPECT_EQ(there.bytes().back(), std::byte{'p'});
}

TEST(BufferPool, ThreadsShareIt) {
  const End end("vrb0");
  const buffer_pool pool =
      must(buffer_pool::create(end.pd, {.smallest = 64, .largest = 4096, .limit = kMiB}));
  std::atomic<int> wrong{0};
  const auto work = [&](char mine) {
    for (std::size_t i = 0; i < 2000; ++i) {
      const auto got = pool.get(1 + (i * 37) % 4096);
      if (!got) continue;
      fill(got->bytes(), mine);
      const pooled_slice last = *got;
      if (last.bytes().back() != static_cast<std::byte>(mine)) ++wrong;
    }
  };
  {
    const std::jthread one(work, 'a');
    const std::jthread other(work, 'b');
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool.counters().buffers, 0);
}

}  // namespace
}  // namespace verbena::verbs
