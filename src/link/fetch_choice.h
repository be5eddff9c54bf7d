// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "base/time.h"

namespace verbena::link {

/// How the long payloads of a peer on this machine are best taken in just now: out of the ring into
/// which the peer has copied them, or in one copy, which the kernel makes.
///
/// What a ring costs depends on where the two processors stand. Where they share a cache it beats
/// the kernel; where each line must come from another one, it takes several times as long. Nobody
/// says which it is, and in a virtual machine it changes. So this looks at what the way in use
/// takes for a byte, and tries the other one for as little as tells: now and then, less often
/// each time that this was in vain, and at once when the one in use gets slow.
///
/// Threads: the calls of one object are serialised by its user (the shard).
class FetchChoice {
 public:
  enum class Way : std::uint8_t { kRing, kFetch };
  /// In bytes.
  struct Sizes {
    std::size_t span = 256 << 10;   ///< what is timed at once: a way is judged by some of them
    std::size_t turning = 1 << 20;  ///< what may still come the way which was left: a ring's size
    std::size_t first_pause = 64 << 20;  ///< until a trial; the very first comes sooner
    std::size_t longest_pause = 1 << 30;
  };

  /// It begins with the ring.
  explicit FetchChoice(std::function<Time()> clock) : FetchChoice(std::move(clock), Sizes{}) {}
  FetchChoice(std::function<Time()> clock, const Sizes& sizes)
      : clock_(std::move(clock)),
        sizes_(sizes),
        pause_(sizes.first_pause),
        left_(sizes.first_pause / 8) {}  // whoever is apart from the beginning should not wait long

  [[nodiscard]] bool fetches() const { return way_ == Way::kFetch; }

  /// While it fetches, how often it has turned; 0: it does not.
  [[nodiscard]] std::uint32_t turn_to_fetching() const { return fetches() ? turns_ : 0; }

  /// So many bytes are here, to be placed. While their message goes on, the time until more comes
  /// counts, too: its sender is at work. Behind its end the program may have nothing more to say.
  void begin(Way way, std::size_t bytes, bool goes_on);
  /// All that has begun is placed.
  void end() {
    if (under_way_.bytes == 0) return;
    under_way_.placed = true;
    if (!under_way_.goes_on) close(clock_());
  }

 private:
  /// Nanoseconds for a mebibyte.
  using Cost = std::uint64_t;
  static constexpr Cost kUnknown = std::numeric_limits<Cost>::max();

  struct UnderWay {
    Way way{};
    std::size_t bytes = 0;  ///< none: nothing is
    bool goes_on = false;
    bool placed = false;
    Time since{};
  };
  struct Span {
    std::size_t bytes = 0;
    Duration took{};
  };
  /// The best of some spans of one way: something may have come between in the others.
  struct Sample {
    Span span{};
    unsigned spans = 0;
    std::size_t bytes = 0;
    Cost least = kUnknown;
  };

  void close(Time now);
  void judge(Cost cost, std::size_t bytes);
  void end_trial(bool better);
  void turn();
  [[nodiscard]] Way other() const { return fetches() ? Way::kRing : Way::kFetch; }

  std::function<Time()> clock_;
  Sizes sizes_;
  Way way_ = Way::kRing;
  bool tries_ = false;  ///< whether the other way is better
  std::uint32_t turns_ = 0;
  std::size_t turning_ = 0;  ///< bytes that are not looked at
  std::size_t strayed_ = 0;  ///< bytes that did not take the way which is tried
  UnderWay under_way_{};
  std::array<Sample, 2> samples_{};
  Cost usual_ = kUnknown;  ///< the least that the way in use took; while it is tried, the other one
  std::size_t pause_;
  std::size_t left_;  ///< of the pause
};

}  // namespace verbena::link
