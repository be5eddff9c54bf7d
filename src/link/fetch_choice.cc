// SPDX-License-Identifier: Apache-2.0
#include "link/fetch_choice.h"

#include <algorithm>

namespace verbena::link {
namespace {

constexpr std::uint64_t kMebibyte = 1 << 20;
/// A way is judged by the best of so many spans.
constexpr unsigned kSpans = 4;
/// The way in use got slow when it takes so many times what it took.
constexpr std::uint64_t kSlow = 2;
/// This part of the first pause has to go by before a way that got slow is a reason for a trial;
/// and as much that does not go the way which is tried ends one.
constexpr std::size_t kPart = 4;
constexpr Duration kLongest = std::chrono::seconds(1);

/// A way is left for one that takes less than four fifths of its time.
constexpr bool beats(std::uint64_t cost, std::uint64_t other) { return cost < other / 5 * 4; }

}  // namespace

void FetchChoice::begin(Way way, std::size_t bytes, bool goes_on) {
  const Time now = clock_();
  const bool apart = under_way_.bytes == 0 || under_way_.placed;
  close(now);
  // What two channels bring at once is placed together.
  if (apart) under_way_ = {.way = way, .bytes = bytes, .goes_on = goes_on, .since = now};
}

void FetchChoice::close(Time now) {
  const UnderWay ended = std::exchange(under_way_, {});
  if (!ended.placed) return;
  if (turning_ != 0) {
    turning_ -= std::min(turning_, ended.bytes);
    return;
  }
  if (tries_ && ended.way != way_) {
    strayed_ += ended.bytes;
    if (strayed_ >= sizes_.first_pause / kPart) return end_trial(false);
  }
  Sample& sample = samples_[std::to_underlying(ended.way)];
  Span& span = sample.span;
  span.bytes += ended.bytes;
  span.took += std::clamp(now - ended.since, Duration::zero(), kLongest);
  if (span.bytes < sizes_.span) return;
  const auto took = static_cast<std::uint64_t>(span.took.count());
  sample.least = std::min(sample.least, took * kMebibyte / span.bytes);
  sample.bytes += span.bytes;
  span = {};
  if (++sample.spans < kSpans) return;
  const Sample whole = std::exchange(sample, {});
  if (ended.way == way_) judge(whole.least, whole.bytes);
}

/// What so much of the way in use took.
void FetchChoice::judge(Cost cost, std::size_t bytes) {
  if (tries_) {
    const bool better = beats(cost, usual_);
    if (better) usual_ = cost;
    return end_trial(better);
  }
  const bool slow =
      usual_ != kUnknown && cost > kSlow * usual_ && pause_ - left_ >= sizes_.first_pause / kPart;
  usual_ = std::min(usual_, cost);
  left_ -= std::min(left_, bytes);
  if (left_ != 0 && !slow) return;
  usual_ = cost;
  tries_ = true;
  turn();
}

void FetchChoice::end_trial(bool better) {
  tries_ = false;
  pause_ = better ? sizes_.first_pause : std::min(2 * pause_, sizes_.longest_pause);
  left_ = pause_;
  if (!better) turn();
}

void FetchChoice::turn() {
  way_ = other();
  ++turns_;
  turning_ = sizes_.turning;
  strayed_ = 0;
  samples_ = {};
}

}  // namespace verbena::link
