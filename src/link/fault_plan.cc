// SPDX-License-Identifier: Apache-2.0
#include "link/fault_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace verbena::link {
namespace {

constexpr std::array<std::string_view, kFaults> kFaultNames = {
    "drop", "duplicate", "reorder", "delay", "corrupt", "truncate", "mark"};

constexpr std::array<std::pair<std::string_view, wire::Operation>, 11> kOperations = {{
    {"send", wire::Operation::kSend},
    {"write", wire::Operation::kWrite},
    {"read_request", wire::Operation::kReadRequest},
    {"read_response", wire::Operation::kReadResponse},
    {"ack", wire::Operation::kAcknowledge},
    {"atomic_ack", wire::Operation::kAtomicAcknowledge},
    {"compare_swap", wire::Operation::kCompareSwap},
    {"fetch_add", wire::Operation::kFetchAdd},
    {"atomic_write", wire::Operation::kAtomicWrite},
    {"flush", wire::Operation::kFlush},
    {"cnp", wire::Operation::kCongestion},
}};

struct Unit {
  std::string_view name;
  Duration size;
};
constexpr std::array<Unit, 4> kUnits = {{
    {"ns", std::chrono::nanoseconds(1)},
    {"us", std::chrono::microseconds(1)},
    {"ms", std::chrono::milliseconds(1)},
    {"s", std::chrono::seconds(1)},
}};
constexpr Duration kLongestDelay = std::chrono::seconds(10);
constexpr std::size_t kLongestQuote = 40;

/// Text as an error shows it: short, and without what a terminal would obey.
std::string quoted(std::string_view text) {
  std::string shown(text.substr(0, kLongestQuote));
  std::ranges::replace_if(shown, [](char c) { return c < ' ' || c > '~'; }, '?');
  return "'" + shown + (text.size() > kLongestQuote ? "…'" : "'");
}

template <typename... Args>
std::unexpected<Error> wrong(fmt::format_string<Args...> format, Args&&... args) {
  return fail(std::errc::invalid_argument,
              "fault plan: " + fmt::format(format, std::forward<Args>(args)...));
}

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return number;
}

/// "1%", "0.05%", "250ppm".
std::optional<std::uint32_t> parse_rate(std::string_view text) {
  if (text.ends_with("ppm")) {
    text.remove_suffix(3);
    const auto parts = parse_number(text);
    if (!parts || *parts > kAlways) return std::nullopt;
    return static_cast<std::uint32_t>(*parts);
  }
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  const auto point = text.find('.');
  const auto whole = parse_number(text.substr(0, point));
  if (!whole || *whole > 100) return std::nullopt;
  std::uint64_t parts = *whole * 10'000;
  if (point != std::string_view::npos) {
    std::string decimals(text.substr(point + 1));
    if (decimals.empty() || decimals.size() > 4) return std::nullopt;
    decimals.resize(4, '0');
    const auto fraction = parse_number(decimals);
    if (!fraction) return std::nullopt;
    parts += *fraction;
  }
  if (parts > kAlways) return std::nullopt;
  return static_cast<std::uint32_t>(parts);
}

std::optional<Duration> parse_duration(std::string_view text) {
  const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_number(text.substr(0, digits));
  const auto unit = std::ranges::find(kUnits, text.substr(digits), &Unit::name);
  if (!number || unit == kUnits.end()) return std::nullopt;
  if (*number > static_cast<std::uint64_t>(kLongestDelay / unit->size)) return std::nullopt;
  return static_cast<Duration::rep>(*number) * unit->size;
}

Result<void> parse_delay_time(std::string_view text, FaultPlan& plan) {
  const auto dash = text.find('-');
  const auto low = parse_duration(text.substr(0, dash));
  const auto high = dash == std::string_view::npos ? low : parse_duration(text.substr(dash + 1));
  if (!low || !high || *low > *high)
    return wrong("{} is no delay_time: say one like 100us-2ms, up to 10s", quoted(text));
  plan.delay_min = *low;
  plan.delay_max = *high;
  return {};
}

/// "7" or "7-9".
Result<void> parse_numbers(std::string_view text, std::string_view item, FaultRule& rule) {
  const auto dash = text.find('-');
  const auto first = parse_number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_number(text.substr(dash + 1));
  if (!first || !last || *first == 0 || *first > *last)
    return wrong("{} names no datagrams behind '@': say @7 or @7-9, from 1", quoted(item));
  rule.first = *first;
  rule.last = *last;
  return {};
}

/// fault[:kind][@numbers][=rate]
Result<FaultRule> parse_rule(std::string_view item) {
  FaultRule rule;
  std::string_view rest = item;
  const auto equals = rest.find('=');
  if (equals != std::string_view::npos) {
    const auto rate = parse_rate(rest.substr(equals + 1));
    if (!rate) return wrong("{} has no rate behind '=': say 1%, 0.05% or 250ppm", quoted(item));
    rule.rate_ppm = *rate;
    rest = rest.substr(0, equals);
  }
  const auto at = rest.find('@');
  if (at != std::string_view::npos) {
    VERBENA_TRY(parse_numbers(rest.substr(at + 1), item, rule));
    rest = rest.substr(0, at);
  }
  const auto colon = rest.find(':');
  if (colon != std::string_view::npos) {
    const auto kind =
        std::ranges::find(kOperations, rest.substr(colon + 1), [](auto& row) { return row.first; });
    if (kind == kOperations.end())
      return wrong(
          "{} names no kind of packet behind ':': send, write, read_request, read_response, "
          "ack, atomic_ack, compare_swap, fetch_add, atomic_write, flush or cnp",
          quoted(item));
    rule.operation = kind->second;
    rest = rest.substr(0, colon);
  }
  const auto* const name = std::ranges::find(kFaultNames, rest);
  if (name == kFaultNames.end())
    return wrong(
        "{} is no fault: drop, duplicate, reorder, delay, corrupt, truncate or mark; seed "
        "and delay_time stand beside them",
        quoted(rest));
  rule.fault = static_cast<Fault>(name - kFaultNames.begin());
  if (equals == std::string_view::npos && at == std::string_view::npos)
    return wrong("{} does not say how often: say {}=1% or {}@7", quoted(item), rest, rest);
  return rule;
}

}  // namespace

std::string_view to_string(Fault fault) { return kFaultNames[static_cast<std::size_t>(fault)]; }

Result<FaultPlan> parse_fault_plan(std::string_view text) {
  FaultPlan plan;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const std::string_view item = trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (item.empty()) continue;
    if (item.starts_with("seed=")) {
      const auto seed = parse_number(item.substr(5));
      if (!seed) return wrong("{} is no whole number below 2^64", quoted(item.substr(5)));
      plan.seed = *seed;
    } else if (item.starts_with("delay_time=")) {
      VERBENA_TRY(parse_delay_time(item.substr(11), plan));
    } else {
      plan.rules.push_back(VERBENA_TRY(parse_rule(item)));
      if (plan.rules.size() > FaultPlan::kMaxRules)
        return wrong("more than {} rules", FaultPlan::kMaxRules);
    }
  }
  return plan;
}

std::string to_string(const FaultPlan& plan) {
  std::string text = fmt::format("seed={}", plan.seed);
  for (const FaultRule& rule : plan.rules) {
    text += fmt::format(",{}", to_string(rule.fault));
    if (rule.operation) {
      const auto* const row =
          std::ranges::find(kOperations, *rule.operation, [](auto& entry) { return entry.second; });
      if (row != kOperations.end()) text += fmt::format(":{}", row->first);
    }
    const FaultRule all;
    const bool numbered = rule.first != all.first || rule.last != all.last;
    if (numbered) text += fmt::format("@{}-{}", rule.first, rule.last);
    if (!numbered || rule.rate_ppm != kAlways) text += fmt::format("={}ppm", rule.rate_ppm);
  }
  return text +
         fmt::format(",delay_time={}ns-{}ns", plan.delay_min.count(), plan.delay_max.count());
}

}  // namespace verbena::link
