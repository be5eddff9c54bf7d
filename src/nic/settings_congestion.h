// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "nic/settings.h"

// Rows of the settings table: congestion control and its parameters.

namespace verbena::nic {

inline constexpr std::array<std::string_view, 2> kCongestionChoices{"off", "dcqcn"};
inline constexpr std::uint64_t kMegabit = 1'000'000;

inline constexpr Setting kCongestionControl{
    .key = "transport.congestion_control",
    .environment = "VERBENA_CONGESTION_CONTROL",
    .kind = SettingKind::kChoice,
    .meaning =
        "Whether packets are ECN-capable, marked ones are answered with CNPs, and CNPs slow their "
        "queue pair down: at both ends.",
    .allowed = {},
    .choices = kCongestionChoices,
    .number = [](const Settings& s) { return std::uint64_t{s.nic.engine.congestion.on}; },
    .set_number = [](Settings& s,
                     std::uint64_t value) { s.nic.engine.congestion.on = value != 0; }};

/// A number or a time of the controller's, counted in `Unit`.
template <auto Member, std::uint64_t Unit = 1>
constexpr Setting congestion(std::string_view key, std::string_view environment,
                             std::string_view meaning, std::uint64_t low, std::uint64_t high) {
  using Value = std::remove_cvref_t<decltype(engine::CongestionConfig{}.*Member)>;
  constexpr bool kIsTime = std::is_same_v<Value, Duration>;
  return {.key = key,
          .environment = environment,
          .kind = kIsTime ? SettingKind::kDuration : SettingKind::kNumber,
          .meaning = meaning,
          .allowed = {},
          .low = low,
          .high = high,
          .number =
              [](const Settings& s) {
                const Value value = s.nic.engine.congestion.*Member;
                if constexpr (kIsTime) {
                  return static_cast<std::uint64_t>(value.count());
                } else {
                  return std::uint64_t{value / Unit};
                }
              },
          .set_number =
              [](Settings& s, std::uint64_t value) {
                s.nic.engine.congestion.*Member = static_cast<Value>(value * Unit);
              }};
}

}  // namespace verbena::nic
