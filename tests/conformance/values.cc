// SPDX-License-Identifier: Apache-2.0
#include "conformance/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace verbena::conformance {
namespace {

constexpr std::uint8_t kTimerCode = 1;  // of an RNR NAK that does not say which
constexpr std::array<std::string_view, 4> kNaks = {"nak-sequence", "nak-invalid", "nak-access",
                                                   "nak-operational"};

}  // namespace

Result<std::uint64_t> parse_number(std::string_view text) {
  const bool hex = text.starts_with("0x");
  const std::string_view digits = hex ? text.substr(2) : text;
  std::uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, value, hex ? 16 : 10);
  if (digits.empty() || error != std::errc{} || at != end)
    return wrong(fmt::format("'{}' is no number", text));
  return value;
}

Result<Duration> parse_duration(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_number(text.substr(0, digits));
  const std::string_view unit = text.substr(digits);
  constexpr std::uint64_t kLongest = 1'000'000;
  if (number && *number <= kLongest) {
    const auto count = static_cast<Duration::rep>(*number);
    if (unit == "us") return std::chrono::microseconds(count);
    if (unit == "ms") return std::chrono::milliseconds(count);
    if (unit == "s") return std::chrono::seconds(count);
  }
  return wrong(fmt::format("'{}' is no duration", text));
}

Result<wire::Aeth> parse_syndrome(std::string_view text) {
  wire::Aeth made;
  if (text == "ack") return made;
  if (const auto nak = std::ranges::find(kNaks, text); nak != kNaks.end()) {
    made.kind = wire::Aeth::Kind::kNak;
    made.value = static_cast<std::uint8_t>(nak - kNaks.begin());
    return made;
  }
  constexpr std::string_view kRnr = "rnr-";
  if (text != "rnr" && !text.starts_with(kRnr))
    return wrong(fmt::format("'{}' is no syndrome", text));
  made.kind = wire::Aeth::Kind::kRnrNak;
  made.value = kTimerCode;
  if (text != "rnr")
    made.value = static_cast<std::uint8_t>(VERBENA_TRY(parse_number(text.substr(kRnr.size()))));
  return made;
}

bool has_syndrome(const wire::Aeth& aeth, std::string_view text) {
  const auto wanted = parse_syndrome(text);
  if (!wanted || wanted->kind != aeth.kind) return false;
  return aeth.kind == wire::Aeth::Kind::kAck || text == "rnr" || wanted->value == aeth.value;
}

}  // namespace verbena::conformance
