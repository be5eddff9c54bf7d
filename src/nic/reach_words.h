// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/sys.h"

namespace verbena::nic {

/// What of the other one's memory either end of a channel is touching just now: a page that both
/// have mapped, with a word for each. A hazard pointer (Michael, "Hazard Pointers: Safe Memory
/// Reclamation for Lock-Free Objects", 2004) between processes.
class ReachWords {
 public:
  struct Made;
  /// Makes them, with the descriptor for the other end.
  [[nodiscard]] static Result<Made> create();
  /// bad_message for what is none.
  [[nodiscard]] static Result<ReachWords> open(int fd);
  ReachWords(ReachWords&& other) noexcept : base_(std::exchange(other.base_, nullptr)) {}
  ReachWords& operator=(ReachWords&& other) noexcept {
    std::swap(base_, other.base_);
    return *this;
  }
  ~ReachWords();

  /// 0: nothing. `end` is 0 for who made them, 1 for who was given them.
  [[nodiscard]] std::atomic<std::uint64_t>& of(std::size_t end) const { return word(end); }
  /// Not 0: that end does not look at the other's word any more, which therefore must touch
  /// nothing.
  [[nodiscard]] std::atomic<std::uint64_t>& refusal_of(std::size_t end) const {
    return word(2 + end);
  }

 private:
  static constexpr std::size_t kApart = 128;  // processors fetch lines in pairs

  explicit ReachWords(std::byte* base) : base_(base) {}
  [[nodiscard]] std::atomic<std::uint64_t>& word(std::size_t index) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + index * kApart);
  }
  [[nodiscard]] static Result<ReachWords> map(int fd);

  std::byte* base_ = nullptr;
};

struct ReachWords::Made {
  ReachWords words;
  sys::OwnedFd descriptor;
};

}  // namespace verbena::nic
