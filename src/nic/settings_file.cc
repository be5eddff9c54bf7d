// SPDX-License-Identifier: Apache-2.0
//
// The only file that sees toml++. It is compiled without exceptions of its own and without streams
// of ours, since it becomes part of the preloaded library; what may still be thrown (memory) ends
// here.
//
// toml++ asserts what a wrong file can break ("[=]"), and its assertion must not end the program
// either: it throws, and parse() answers.
namespace verbena::nic {
namespace {
struct ParserConfused {};
[[noreturn]] void parser_confused() { throw ParserConfused{}; }
}  // namespace
}  // namespace verbena::nic
#undef NDEBUG  // it would turn the assertions into assumptions
#define TOML_ASSERT(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : ::verbena::nic::parser_confused())
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 16
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "nic/settings.h"

namespace verbena::nic {

namespace {

std::unexpected<Error> wrong(std::string_view file, const toml::source_region& source,
                             std::string_view what) {
  return fail(std::errc::invalid_argument, fmt::format("{}:{}: {}", file, source.begin.line, what));
}

/// The line of the first character that toml++ 3.3 cannot be trusted with: its table of Unicode
/// white space runs into undefined behaviour wherever it looks for white space, which it does in
/// most places. Comments may hold any text; strings have \u for what is not ASCII, and are of one
/// line.
std::optional<std::size_t> untrusted_line(std::string_view text) {
  char inside = 0;  // the quotation mark of a string, # in a comment
  std::size_t line = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      inside = 0;
      ++line;
    } else if (inside != '#') {
      const auto three = text.substr(i, 3);
      if ((c & 0x80) != 0 || three == R"(""")" || three == "'''") return line;
      if (inside == '"' && c == '\\' && text.substr(i + 1, 1) != "\n") {
        ++i;
        if (i < text.size() && (text[i] & 0x80) != 0) return line;
      } else if (inside == 0 && (c == '"' || c == '\'' || c == '#')) {
        inside = c;
      } else if (inside == c) {
        inside = 0;
      }
    }
  }
  return std::nullopt;
}

/// The value in the words of the environment; nothing when its kind does not fit.
std::optional<std::string> as_text(const toml::node& node, SettingKind kind) {
  if (const auto* text = node.as_string()) return text->get();
  const bool number = kind == SettingKind::kNumber || kind == SettingKind::kChoice;
  if (const auto* integer = node.as_integer(); integer != nullptr && number) {
    return fmt::format("{}", integer->get());
  }
  if (const auto* array = node.as_array(); array != nullptr && kind == SettingKind::kList) {
    std::string list;
    for (const auto& element : *array) {
      const auto* text = element.as_string();
      if (text == nullptr || text->get().find(',') != std::string::npos) return std::nullopt;
      if (!list.empty()) list += ',';
      list += text->get();
    }
    return list;
  }
  return std::nullopt;
}

Result<void> apply_node(const std::string& key, const toml::node& node, std::string_view file,
                        Settings& settings) {
  const auto table = setting_table();
  const auto setting = std::ranges::find(table, key, &Setting::key);
  if (setting == table.end()) {
    return wrong(file, node.source(), fmt::format("there is no setting {}", quoted(key)));
  }
  const auto text = as_text(node, setting->kind);
  if (!text) {
    return wrong(file, node.source(), fmt::format("{} must be {}", key, allowed_values(*setting)));
  }
  const auto origin = fmt::format("{}:{}: {}", file, node.source().begin.line, key);
  return set_value(*setting, *text, origin, settings);
}

/// Sections go one level deep: "limits.max_qp".
Result<void> apply_table(const toml::table& table, const std::string& section,
                         std::string_view file, Settings& settings) {
  for (const auto& [name, node] : table) {
    const auto key = section.empty() ? std::string(name.str())
                                     : fmt::format("{}.{}", section, std::string_view(name.str()));
    if (const auto* inner = node.as_table(); inner != nullptr && section.empty()) {
      VERBENA_TRY(apply_table(*inner, key, file, settings));
    } else {
      VERBENA_TRY(apply_node(key, node, file, settings));
    }
  }
  return {};
}

bool confuses(std::string_view text) {
  try {
    (void)toml::parse(text);
    return false;
  } catch (const ParserConfused&) {
    return true;
  }
}

/// The line up to which the text must be read for the parser to be confused: all that begin with it
/// confuse it too.
Result<void> name_confusing_line(std::string_view text, std::string_view file) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\n') ends.push_back(at);
  }
  ends.push_back(text.size());
  const auto line = std::ranges::partition_point(
      ends, [&](std::size_t end) { return !confuses(text.substr(0, end)); });
  return fail(std::errc::invalid_argument,
              fmt::format("{}:{}: this is not TOML", file, line - ends.begin() + 1));
}

Result<void> parse(std::string_view text, std::string_view file, Settings& settings) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  if (const auto line = untrusted_line(text)) {
    return fail(std::errc::invalid_argument,
                fmt::format("{}:{}: strings are of one line, and what is not ASCII must be "
                            "written \\uXXXX in them",
                            file, *line));
  }
  const auto parsed = toml::parse(text);
  if (!parsed) {
    return wrong(file, parsed.error().source(),
                 fmt::format("this is not TOML: {}", parsed.error().description()));
  }
  return apply_table(parsed.table(), {}, file, settings);
}

}  // namespace

Result<void> apply_file(std::string_view text, std::string_view file, Settings& settings) noexcept {
  try {
    try {
      return parse(text, file, settings);
    } catch (const ParserConfused&) {
      return name_confusing_line(text, file);
    }
  } catch (const std::exception&) {
    return fail(std::errc::not_enough_memory);
  }
}

}  // namespace verbena::nic
