// SPDX-License-Identifier: Apache-2.0
#include "conformance/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace verbena::conformance {
namespace {

using Kind = Statement::Kind;
using Words = std::vector<std::string_view>;

constexpr std::size_t kLongestFile = 1 << 20;

/// What a line may begin with, whether a word follows, and the fields that it may have.
struct Grammar {
  std::string_view keyword;
  Kind kind;
  bool word;
  Words fields;
};

const Words& packet_fields() {
  static const Words known = {
      "psn",      "payload",  "data", "address", "rkey",     "length",    "ack",
      "noack",    "se",       "imm",  "inv",     "syndrome", "credits",   "msn",
      "original", "add",      "swap", "compare", "qpn",      "pkey",      "qkey",
      "source",   "icrc",     "pad",  "version", "opcode",   "mig",       "fecn",
      "becn",     "reserved", "srq",  "cut",     "ce",       "placement", "selectivity"};
  return known;
}

const std::array<Grammar, 13>& grammar() {
  static const std::array<Grammar, 13> rows = {{
      {"qp",
       Kind::kQueuePair,
       true,
       {"mtu", "access", "rd", "timeout", "retry", "rnr", "rnr-timer", "rq-psn", "sq-psn", "qkey",
        "cq", "srq", "rtr"}},
      {">", Kind::kSend, true, packet_fields()},
      {"<", Kind::kExpect, true, {"psn",      "payload", "data",   "address",  "rkey", "length",
                                  "ack",      "noack",   "se",     "nose",     "imm",  "inv",
                                  "syndrome", "credits", "msn",    "original", "add",  "swap",
                                  "compare",  "qkey",    "source", "pkey",     "mig",  "within",
                                  "after",    "for",     "becn"}},
      {"wait", Kind::kWait, true, {}},
      {"recv", Kind::kReceive, false, {"count", "length", "wrong-key", "srq-limit"}},
      {"post",
       Kind::kPost,
       true,
       {"length", "data", "address", "rkey", "imm", "inv", "se", "fence", "unsignaled", "inline",
        "add", "swap", "compare", "qkey", "qpn"}},
      {"window", Kind::kBind, true, {"offset", "length", "access"}},
      {"completion",
       Kind::kCompletion,
       true,
       {"status", "opcode", "length", "imm", "inv", "source", "sl"}},
      {"no", Kind::kNoCompletion, true, {}},
      {"event", Kind::kEvent, true, {}},
      {"state", Kind::kState, true, {}},
      {"modify", Kind::kModify, true, {}},
      {"memory", Kind::kMemory, true, {"length", "is"}},
  }};
  return rows;
}

Words words_of(std::string_view line) {
  Words words;
  while (!line.empty()) {
    const std::size_t start = line.find_first_not_of(" \t");
    if (start == std::string_view::npos) break;
    line.remove_prefix(start);
    const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

std::unexpected<Error> wrong(int line, std::string_view what) {
  return fail(std::errc::invalid_argument, fmt::format("line {}: {}", line, what));
}

Result<Statement> parse_statement(const Words& words, int line) {
  const auto found = std::ranges::find(grammar(), words[0], &Grammar::keyword);
  if (found == grammar().end()) return wrong(line, fmt::format("'{}' is no statement", words[0]));
  Statement made{.kind = found->kind, .line = line};
  std::size_t next = 1;
  if (found->word) {
    if (words.size() < 2)
      return wrong(line, fmt::format("a word is missing behind '{}'", words[0]));
    made.word = words[next++];
  }
  const bool packet = made.kind == Kind::kSend || made.kind == Kind::kExpect;
  if (made.kind == Kind::kExpect && made.word == "nothing") {
    made.kind = Kind::kSilence;
  } else if (packet && !opcode_from(made.word)) {
    return wrong(line, fmt::format("'{}' is no opcode", made.word));
  }
  if (made.kind == Kind::kNoCompletion && made.word != "completion")
    return wrong(line, "only 'no completion' is known");
  for (; next < words.size(); ++next) {
    const std::size_t equals = std::min(words[next].find('='), words[next].size());
    const std::string_view name = words[next].substr(0, equals);
    if (std::ranges::find(found->fields, name) == found->fields.end())
      return wrong(line, fmt::format("'{}' is no field of '{}'", name, words[0]));
    if (made.has(name)) return wrong(line, fmt::format("'{}' stands twice", name));
    const std::string_view value = words[next].substr(std::min(equals + 1, words[next].size()));
    made.fields.emplace_back(name, value);
  }
  return made;
}

}  // namespace

std::optional<std::string_view> Statement::field(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::string opcode_name(wire::Opcode opcode) {
  std::string name(wire::info(opcode).name);
  std::ranges::replace(name, ' ', '_');
  return name;
}

std::optional<wire::Opcode> opcode_from(std::string_view name) {
  for (int value = 0; value < 256; ++value) {
    const auto opcode = static_cast<wire::Opcode>(value);
    if (wire::info(opcode).known && opcode_name(opcode) == name) return opcode;
  }
  return std::nullopt;
}

Result<std::vector<Scenario>> parse_scenarios(std::string_view text) {
  if (text.size() > kLongestFile) return fail(std::errc::file_too_large, "over a mebibyte");
  std::vector<Scenario> made;
  Scenario rule;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    rest = rest.substr(0, std::min(rest.find('#'), rest.size()));
    const Words words = words_of(rest);
    if (words.empty()) continue;
    if (words[0] == "rule") {
      const std::size_t colon = rest.find(": ");
      if (!rule.rule.empty() || words.size() < 3 || colon == std::string_view::npos)
        return wrong(line, "a file begins with 'rule NAME: SENTENCE', once");
      rule.rule = words[1].substr(0, words[1].size() - 1);
      rule.about = rest.substr(colon + 2);
      continue;
    }
    if (rule.rule.empty()) return wrong(line, "a file begins with 'rule NAME: SENTENCE'");
    if (words[0] == "scenario") {
      if (words.size() < 2) return wrong(line, "the scenario has no name");
      made.push_back(rule);
      made.back().name = rest.substr(static_cast<std::size_t>(words[1].data() - rest.data()));
      continue;
    }
    if (made.empty()) return wrong(line, "statements follow 'scenario NAME'");
    made.back().statements.push_back(VERBENA_TRY(parse_statement(words, line)));
  }
  if (made.empty()) return fail(std::errc::invalid_argument, "there is no scenario in it");
  return made;
}

}  // namespace verbena::conformance
