// SPDX-License-Identifier: Apache-2.0
#include "link/send_batch.h"

#include <gtest/gtest.h>

namespace verbena::link {
namespace {

wire::Train to(const wire::Path& path, std::uint32_t qpn) {
  wire::Train train;
  train.path = &path;
  train.head.bth.destination_qp = qpn;
  return train;
}

TEST(SendBatch, EqualSizesJoinAndAShorterOneCloses) {
  const wire::Path path;
  const wire::Train train = to(path, 1);
  SendBatch batch;
  EXPECT_EQ(batch.place(train, 100, false), 0);
  EXPECT_EQ(batch.place(train, 100, false), 1);
  EXPECT_EQ(batch.place(train, 99, false), 2);
  EXPECT_EQ(batch.place(train, 99, false), 0);
  EXPECT_EQ(batch.place(train, 100, false), 0);
  batch.begin();
  EXPECT_EQ(batch.place(train, 100, false), 0);
}

TEST(SendBatch, SegmentsAndBytesAreLimited) {
  const wire::Path path;
  const wire::Train train = to(path, 1);
  SendBatch batch;
  for (std::uint32_t i = 0; i < 2 * wire::kMaxSendSegments; ++i)
    EXPECT_EQ(batch.place(train, 28, false), i % wire::kMaxSendSegments);
  batch.begin();
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(batch.place(train, 4128, false), i % 15);
}

TEST(SendBatch, OnePathAndOneSlot) {
  const wire::Path path;
  wire::Path equal;
  wire::Path other;
  other.traffic_class = 4;
  SendBatch batch;
  EXPECT_EQ(batch.place(to(path, 1), 100, false), 0);
  EXPECT_EQ(batch.place(to(equal, 2), 100, false), 1);
  EXPECT_EQ(batch.place(to(other, 2), 100, false), 0);
  EXPECT_EQ(batch.place(to(other, 2 | 1U << kSlotShift), 100, false), 0);
  EXPECT_EQ(batch.place(to(other, 3 | 1U << kSlotShift), 100, false), 1);
}

TEST(SendBatch, SinglePathsStandAlone) {
  const wire::Path path;
  SendBatch batch;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(batch.place(to(path, 1), 100, true), 0);
  EXPECT_EQ(batch.place(to(path, 1), 100, false), 0);
  EXPECT_EQ(batch.place(to(path, 1), 100, false), 1);
}

TEST(ReceivedBatch, SplitsWithARest) {
  const std::vector<std::byte> bytes(250);
  ReceivedBatch batch(bytes, 100);
  std::vector<std::size_t> sizes;
  while (!batch.empty()) {
    EXPECT_EQ(batch.position(), sizes.size());
    sizes.push_back(batch.next().size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{100, 100, 50}));
}

TEST(ReceivedBatch, NoOrTooLargeASizeMeansOne) {
  const std::vector<std::byte> bytes(250);
  for (const std::size_t size : {std::size_t{0}, std::size_t{250}, std::size_t{9999}}) {
    ReceivedBatch batch(bytes, size);
    EXPECT_EQ(batch.next().size(), 250U);
    EXPECT_TRUE(batch.empty());
  }
  EXPECT_TRUE(ReceivedBatch().empty());
  EXPECT_TRUE(ReceivedBatch({}, 5).empty());
}

}  // namespace
}  // namespace verbena::link
