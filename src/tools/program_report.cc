// SPDX-License-Identifier: Apache-2.0
#include "tools/program_report.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

namespace verbena::tools {

namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (;;) {
    const auto begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const auto end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

template <typename T>
std::optional<T> number(std::string_view word) {
  T value{};
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

/// Titles of perftest's columns: "BW average[Gb/sec]" are two words, "99% percentile[usec]" are
/// too.
std::vector<std::string_view> titles_of(std::string_view header) {
  std::vector<std::string_view> titles;
  for (const auto word : words_of(header)) {
    if (word != "BW" && !word.ends_with("%")) titles.push_back(word);
  }
  return titles;
}

std::optional<double> column(const std::vector<std::string_view>& titles,
                             const std::vector<std::string_view>& figures, std::string_view title) {
  const auto found = std::ranges::find(titles, title);
  const auto place = static_cast<std::size_t>(found - titles.begin());
  if (place >= figures.size()) return std::nullopt;
  return number<double>(figures[place]);
}

std::optional<Report> read_perftest(ReportKind kind, std::string_view output) {
  std::vector<std::string_view> titles;
  std::optional<Report> last;
  for (const auto line : lines_of(output)) {
    const auto words = words_of(line);
    if (words.size() < 3) continue;
    if (words[0] == "#bytes") titles = titles_of(line);
    const auto bytes = number<std::uint64_t>(words[0]);
    const auto iterations = number<std::uint64_t>(words[1]);
    if (!bytes || !iterations || titles.empty()) continue;
    Report report{.bytes = *bytes, .iterations = *iterations};
    if (kind == ReportKind::kBandwidth) {
      const auto average = column(titles, words, "average[Gb/sec]");
      if (!average) continue;
      report.gigabits = *average;
      report.million_messages = column(titles, words, "MsgRate[Mpps]").value_or(0);
    } else {
      const auto typical = column(titles, words, "t_typical[usec]");
      if (!typical) continue;
      report.microseconds = *typical;
    }
    last = report;
  }
  return last;
}

/// "8192000 bytes in 0.01 seconds = 9362.29 Mbit/sec" and "1000 iters in 0.01 seconds = 7.00
/// usec/iter".
std::optional<Report> read_pingpong(std::string_view output) {
  Report report;
  std::uint64_t all_bytes = 0;
  for (const auto line : lines_of(output)) {
    const auto words = words_of(line);
    if (words.size() != 8 || words[2] != "in" || words[5] != "=") continue;
    const auto count = number<std::uint64_t>(words[0]);
    const auto value = number<double>(words[6]);
    if (!count || !value) continue;
    if (words[1] == "bytes") {
      all_bytes = *count;
      report.gigabits = *value / 1000;
    } else if (words[1] == "iters") {
      report.iterations = *count;
      report.microseconds = *value / 2;
    }
  }
  if (all_bytes == 0 || report.iterations == 0) return std::nullopt;
  report.bytes = all_bytes / report.iterations / 2;  // there and back
  return report;
}

}  // namespace

std::optional<Report> read_report(ReportKind kind, std::string_view output) {
  return kind == ReportKind::kPingPong ? read_pingpong(output) : read_perftest(kind, output);
}

}  // namespace verbena::tools
