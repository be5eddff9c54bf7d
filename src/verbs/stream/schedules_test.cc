// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "verbs/stream/core.h"
#include "verbs/stream/test_network.h"

// Two cores between which everything happens in any order.

namespace verbena::verbs::streams {
namespace {

using testing::acknowledge;
using testing::arrive;
using testing::FakeEnd;
using testing::take;

/// One direction of a stream under test: what goes in is counted up, what comes out must be.
class Direction {
 public:
  Direction(FakeEnd& from, FakeEnd& to, std::size_t total) : from_(from), to_(to), data_(total) {
    for (std::size_t i = 0; i < total; ++i) data_[i] = value_at(i);
  }

  void write(std::size_t most) {
    written_ += from_.write(next(most));
    if (written_ == data_.size()) from_.core.shutdown();
  }
  void write_direct(std::size_t most) {
    written_ += from_.write_direct(next(most));
    if (written_ == data_.size()) from_.core.shutdown();
  }
  void read(std::size_t most) {
    std::vector<std::byte> into(most);
    const std::size_t n = to_.read(into);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(into[i], data_[read_ + i]);
    read_ += n;
  }
  [[nodiscard]] bool all_read() const {
    const auto front = to_.core.front();
    return read_ == data_.size() && front && front->empty();
  }

 private:
  static std::byte value_at(std::size_t i) { return static_cast<std::byte>(i * 31 + i / 251); }
  [[nodiscard]] std::span<const std::byte> next(std::size_t most) const {
    return std::span(data_).subspan(written_, std::min(most, data_.size() - written_));
  }

  FakeEnd& from_;
  FakeEnd& to_;
  std::vector<std::byte> data_;
  std::size_t written_ = 0;
  std::size_t read_ = 0;
};

class Schedule {
 public:
  explicit Schedule(std::uint64_t seed)
      : random_(seed),
        unit_(seed % 3 == 0 ? kWholePackets : 1),
        left_(options()),
        right_(options()),
        there_(left_, right_, total()),
        back_(right_, left_, total()) {}

  void run() {
    for (std::size_t steps = 0; !over(); ++steps) {
      ASSERT_LT(steps, 3000000U) << "nothing goes on";
      ASSERT_NO_FATAL_FAILURE(step());
      ASSERT_FALSE(left_.core.failure()) << left_.core.failure()->message();
      ASSERT_FALSE(right_.core.failure()) << right_.core.failure()->message();
    }
  }

 private:
  static constexpr std::size_t kWholePackets = 256;

  std::size_t up_to(std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(0, most)(random_);
  }
  std::size_t units(std::size_t most) { return up_to(most) * unit_; }
  std::size_t total() { return units(unit_ == 1 ? 20000 : 1000); }
  std::size_t some() { return up_to(9) == 0 ? up_to(300) : units(300); }
  stream_options options() {
    return {.transport = up_to(1) == 0 ? stream_transport::messages : stream_transport::ring,
            .buffer_size = 64 * unit_ + units(200),
            .receives = 1 + up_to(5),
            .sends = 1 + up_to(5),
            .send_buffer = unit_ + units(700)};
  }
  bool over() const {
    return there_.all_read() && back_.all_read() && left_.core.ended() && right_.core.ended();
  }
  void step() {
    FakeEnd& one = up_to(1) == 0 ? left_ : right_;
    FakeEnd& other = &one == &left_ ? right_ : left_;
    switch (up_to(9)) {
      case 0: return there_.write(some());
      case 1: return there_.read(some());
      case 2: return back_.write(some());
      case 3: return back_.read(some());
      case 4: return there_.write_direct(some());
      case 5: return back_.write_direct(some());
      case 6: return one.pump();
      case 7:
        if (!one.under_way.empty()) arrive(one, other);
        return;
      case 8:
        if (!one.arrived.empty()) take(one);
        return;
      default:
        if (one.acknowledged != 0) acknowledge(one);
        return;
    }
  }

  std::mt19937_64 random_;
  std::size_t unit_;  ///< of most sizes
  FakeEnd left_;
  FakeEnd right_;
  Direction there_;
  Direction back_;
};

/// VERBENA_STREAM_SEED runs one that has failed.
TEST(StreamSchedules, DeliverAllAndEnd) {
  std::vector<std::uint64_t> seeds;
  if (const char* one = std::getenv("VERBENA_STREAM_SEED"); one != nullptr)
    seeds.push_back(std::strtoull(one, nullptr, 0));
  else
    for (std::uint64_t i = 0; i < 300; ++i) seeds.push_back(i < 200 ? i : std::random_device()());
  for (const std::uint64_t seed : seeds) {
    SCOPED_TRACE("VERBENA_STREAM_SEED=" + std::to_string(seed));
    Schedule(seed).run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace verbena::verbs::streams
