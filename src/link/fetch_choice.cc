// SPDX-License-Identifier: Apache-2.0
#include "link/fetch_choice.h"

#include <algorithm>

namespace verbena::link {
namespace {

constexpr std::uint64_t kMebibyte = 1 << 20;
/// A way is judged by the best of so many spans.
constexpr unsigned kSpans = 4;
/// The way in use got slow when it takes so many times what it took; that is no reason for a trial
/// again before this part of the first pause has gone by.
constexpr std::uint64_t kSlow = 2;
constexpr std::size_t kSlowPause = 4;

/// A way is left for one that takes less than four fifths of its time.
constexpr bool beats(std::uint64_t cost, std::uint64_t other) { return cost < other / 5 * 4; }

}  // namespace

void FetchChoice::begin(Way way, std::size_t bytes, bool goes_on) {
  const Time now = clock_();
  if (under_way_.bytes != 0) close(now);
  under_way_ = {.way = way, .bytes = bytes, .goes_on = goes_on, .since = now};
}

void FetchChoice::close(Time now) {
  const UnderWay ended = std::exchange(under_way_, {});
  if (turning_ != 0) {
    turning_ -= std::min(turning_, ended.bytes);
    return;
  }
  Sample& sample = samples_[std::to_underlying(ended.way)];
  Span& span = sample.span;
  span.bytes += ended.bytes;
  span.took += std::max(now - ended.since, Duration::zero());
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
    tries_ = false;
    const bool better = beats(cost, usual_);
    pause_ = better ? sizes_.first_pause : std::min(2 * pause_, sizes_.longest_pause);
    left_ = pause_;
    if (better) {
      usual_ = cost;
    } else {
      turn();
    }
    return;
  }
  const bool slow = usual_ != kUnknown && cost > kSlow * usual_ &&
                    pause_ - left_ >= sizes_.first_pause / kSlowPause;
  usual_ = std::min(usual_, cost);
  left_ -= std::min(left_, bytes);
  if (left_ != 0 && !slow) return;
  usual_ = cost;
  tries_ = true;
  turn();
}

void FetchChoice::turn() {
  way_ = other();
  turning_ = sizes_.turning;
  awaits_first_ = fetches();
  samples_ = {};
}

}  // namespace verbena::link
