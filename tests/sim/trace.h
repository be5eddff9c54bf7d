// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/time.h"

namespace verbena::sim {

/// What happened in a run, in order: a hash of everything always, lines for a person when asked.
/// Two runs are the same run exactly when their hashes are.
class Trace {
 public:
  /// Lines go to `to`, unless it is null.
  explicit Trace(std::FILE* to) : to_(to) {}

  void mix(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29;
  }
  template <typename... Numbers>
  void mix_all(Numbers... numbers) {
    (mix(static_cast<std::uint64_t>(numbers)), ...);
  }

  [[nodiscard]] bool prints() const { return to_ != nullptr; }
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

  /// A line: "   12.345678 ms  process  text". Formatting costs nothing when nobody reads it.
  template <typename... Args>
  void line(Time now, std::string_view who, fmt::format_string<Args...> format, Args&&... args) {
    if (to_ == nullptr) return;
    fmt::print(to_, "{:>13.6f} ms  {:<14} ",
               std::chrono::duration<double, std::milli>(now.time_since_epoch()).count(), who);
    fmt::print(to_, format, std::forward<Args>(args)...);
    std::fputc('\n', to_);
  }

 private:
  std::FILE* to_;
  std::uint64_t hash_ = 0x5EED;
};

}  // namespace verbena::sim
