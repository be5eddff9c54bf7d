// SPDX-License-Identifier: Apache-2.0
// A setting's value as text: read, shown, and what may stand there.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "nic/settings.h"

namespace verbena::nic {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
// The largest first, so that a value is shown in the largest unit that divides it.
constexpr std::array kSizes{Unit{"G", 1 << 30}, Unit{"M", 1 << 20}, Unit{"K", 1 << 10},
                            Unit{"", 1}};
constexpr std::array kTimes{Unit{"s", 1'000'000'000}, Unit{"ms", 1'000'000}, Unit{"us", 1000},
                            Unit{"ns", 1}};

bool read_number(std::string_view text, std::span<const Unit> units, std::uint64_t& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{}) return false;
  const std::string_view name(rest, end);
  for (const auto& unit : units) {
    if (unit.name == name) return !__builtin_mul_overflow(value, unit.factor, &value);
  }
  return false;
}

std::string show_number(std::uint64_t value, std::span<const Unit> units) {
  for (const auto& unit : units) {
    if (value % unit.factor == 0 && (value != 0 || unit.factor == 1)) {
      return fmt::format("{}{}", value / unit.factor, unit.name);
    }
  }
  return {};
}

std::span<const Unit> units_of(const Setting& setting) {
  return setting.kind == SettingKind::kDuration ? std::span<const Unit>(kTimes)
                                                : std::span<const Unit>(kSizes);
}

Result<void> store(const Setting& setting, std::string_view value, Settings& settings) {
  switch (setting.kind) {
    case SettingKind::kText:
    case SettingKind::kList: return setting.set_text(settings, value);
    case SettingKind::kChoice: {
      const auto found = std::ranges::find(setting.choices, value);
      if (found == setting.choices.end()) return fail(std::errc::invalid_argument);
      setting.set_number(settings, static_cast<std::uint64_t>(found - setting.choices.begin()));
      return {};
    }
    case SettingKind::kNumber:
    case SettingKind::kDuration: {
      std::uint64_t number = 0;
      if (!read_number(value, units_of(setting), number)) return fail(std::errc::invalid_argument);
      if (number < setting.low || number > setting.high) return fail(std::errc::invalid_argument);
      setting.set_number(settings, number);
      return {};
    }
  }
  return fail(std::errc::invalid_argument);
}

}  // namespace

std::string show_value(const Setting& setting, const Settings& settings) {
  switch (setting.kind) {
    case SettingKind::kText:
    case SettingKind::kList: return setting.text(settings);
    case SettingKind::kChoice: return std::string(setting.choices[setting.number(settings)]);
    case SettingKind::kNumber: return fmt::format("{}", setting.number(settings));
    case SettingKind::kDuration: break;
  }
  return show_number(setting.number(settings), kTimes);
}

std::string allowed_values(const Setting& setting) {
  if (setting.kind == SettingKind::kNumber) {
    return fmt::format("a whole number from {} to {}", show_number(setting.low, kSizes),
                       show_number(setting.high, kSizes));
  }
  if (setting.kind == SettingKind::kDuration) {
    return fmt::format("a time from {} to {}", show_number(setting.low, kTimes),
                       show_number(setting.high, kTimes));
  }
  if (setting.kind != SettingKind::kChoice) return std::string(setting.allowed);
  std::string list;
  for (std::size_t i = 0; i < setting.choices.size(); ++i) {
    if (i > 0) list += i + 1 == setting.choices.size() ? " or " : ", ";
    list += setting.choices[i];
  }
  return list;
}

std::string document_row(const Setting& setting) {
  const std::string value = show_value(setting, Settings{});
  return fmt::format("| `{}` | `{}` | {} | {} | {} |", setting.key, setting.environment,
                     value.empty() ? "nothing" : fmt::format("`{}`", value),
                     allowed_values(setting), setting.meaning);
}

std::string quoted(std::string_view value) {
  constexpr std::size_t kLongest = 64;
  std::string text(value.substr(0, kLongest));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) c = '?';
  }
  return fmt::format("'{}{}'", text, value.size() > kLongest ? "…" : "");
}

Result<void> set_value(const Setting& setting, std::string_view value, std::string_view origin,
                       Settings& settings) {
  const auto stored = store(setting, value, settings);
  if (stored) return {};
  const auto& reason = stored.error().message;
  return fail(std::errc::invalid_argument,
              fmt::format("{} is {}, but must be {}{}{}", origin, quoted(value),
                          allowed_values(setting), reason.empty() ? "" : ": ", reason));
}

}  // namespace verbena::nic
