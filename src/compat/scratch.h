// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

namespace verbena::compat {

/// Room on the stack whose values are set before they are read: an array would be set to its
/// members' defaults at every call of the data path.
template <typename T, std::size_t kMost>
class Scratch {
 public:
  explicit Scratch(std::size_t count) : count_(std::min(count, kMost)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// `count` values, or kMost when that is less.
  [[nodiscard]] std::span<T> view() { return {first(), count_}; }

 private:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  [[nodiscard]] T* first() { return reinterpret_cast<T*>(room_); }

  alignas(T) std::byte room_[kMost * sizeof(T)];
  std::size_t count_;
};

}  // namespace verbena::compat
