// SPDX-License-Identifier: Apache-2.0
#include "conformance/tester.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "conformance/values.h"

namespace verbena::conformance {
namespace {

using Kind = Statement::Kind;
using wire::Operation;

constexpr std::uint32_t kRqPsn = 100;
constexpr std::uint32_t kSqPsn = 5000;

bool is_response(Operation operation) {
  return operation == Operation::kReadResponse || operation == Operation::kAcknowledge ||
         operation == Operation::kAtomicAcknowledge;
}

/// A field of a subject's answer: "status=success".
std::optional<std::string_view> answer_field(std::string_view answer, std::string_view name) {
  for (std::size_t at = answer.find(name); at != std::string_view::npos;
       at = answer.find(name, at + 1)) {
    const std::size_t behind = at + name.size();
    if ((at != 0 && answer[at - 1] != ' ') || behind >= answer.size() || answer[behind] != '=')
      continue;
    const std::string_view value = answer.substr(behind + 1);
    return value.substr(0, std::min(value.find(' '), value.size()));
  }
  return std::nullopt;
}

}  // namespace

Verdict Tester::run(const Scenario& scenario) {
  symbols_.clear();
  for (const Statement& statement : scenario.statements) {
    const Check done = execute(statement);
    if (done) continue;
    static_cast<void>(bench_.ask("close"));
    if (done.error().condition == std::errc::not_supported)
      return {.kind = Verdict::Kind::kSkipped, .why = done.error().message};
    return {.kind = Verdict::Kind::kFailed,
            .why = fmt::format("line {}: {}", statement.line, done.error().message)};
  }
  static_cast<void>(bench_.ask("close"));
  return {};
}

Tester::Check Tester::execute(const Statement& statement) {
  switch (statement.kind) {
    case Kind::kQueuePair: return open(statement);
    case Kind::kSend: return send(statement);
    case Kind::kExpect: return expect(statement);
    case Kind::kSilence: return silence(statement);
    case Kind::kWait: bench_.sleep(VERBENA_TRY(parse_duration(statement.word))); return {};
    case Kind::kReceive: return tell(statement, "recv");
    case Kind::kPost: return tell(statement, "post");
    case Kind::kBind: return bind(statement);
    case Kind::kCompletion: return await(statement, "poll");
    case Kind::kNoCompletion: return no_completion();
    case Kind::kEvent: return await(statement, "event");
    case Kind::kState: return await(statement, "state");
    case Kind::kModify: return tell(statement, "modify");
    case Kind::kMemory: return tell(statement, "compare");
  }
  return wrong("an unknown statement");
}

// The subject.

Result<std::string> Tester::ask(std::string_view line) {
  std::string answer = VERBENA_TRY(bench_.ask(line));
  if (answer.starts_with("unsupported"))
    return fail(std::errc::not_supported, answer.substr(std::min(answer.size(), std::size_t{13})));
  if (!answer.starts_with("ok")) return wrong(fmt::format("'{}': {}", line, answer));
  return answer;
}

Tester::Check Tester::open(const Statement& statement) {
  rq_psn_ = static_cast<std::uint32_t>(VERBENA_TRY(number_of(statement, "rq-psn", kRqPsn)));
  sq_psn_ = static_cast<std::uint32_t>(VERBENA_TRY(number_of(statement, "sq-psn", kSqPsn)));
  mtu_ = static_cast<std::uint32_t>(VERBENA_TRY(number_of(statement, "mtu", 1024)));
  std::string line = fmt::format("open type={} gid={} peer={} rq-psn={} sq-psn={}", statement.word,
                                 wire::to_string(bench_.address()), number_, rq_psn_, sq_psn_);
  if (!statement.has("qkey")) line += fmt::format(" qkey={}", kQkey);
  for (const auto& [name, value] : statement.fields) {
    if (name != "rq-psn" && name != "sq-psn") line += fmt::format(" {}={}", name, value);
  }
  const std::string answer = VERBENA_TRY(ask(line));
  // "ok qpn=17 region.address=0x… region.rkey=0x… …"
  std::string_view rest = std::string_view(answer).substr(2);
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const std::string_view pair = rest.substr(0, std::min(rest.find(' '), rest.size()));
    rest.remove_prefix(pair.size());
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    symbols_[std::string(pair.substr(0, equals))] =
        VERBENA_TRY(parse_number(pair.substr(equals + 1)));
  }
  if (!symbols_.contains("qpn")) return wrong("the subject tells no queue pair number");
  last_ = bench_.now();
  return {};
}

Tester::Check Tester::tell(const Statement& statement, std::string_view verb) {
  std::string line = fmt::format("{}{}{}", verb, statement.word.empty() ? "" : " ", statement.word);
  for (const auto& [name, value] : statement.fields) line += fmt::format(" {}={}", name, value);
  static_cast<void>(VERBENA_TRY(ask(line)));
  last_ = bench_.now();
  return {};
}

Tester::Check Tester::bind(const Statement& statement) {
  std::string line = fmt::format("window {}", statement.word);
  for (const auto& [name, value] : statement.fields) line += fmt::format(" {}={}", name, value);
  const std::string answer = VERBENA_TRY(ask(line));
  for (const std::string_view name : {"window.address", "window.rkey"}) {
    const auto value = answer_field(answer, name);
    if (!value) return wrong(fmt::format("the subject tells no {}", name));
    symbols_[std::string(name)] = VERBENA_TRY(parse_number(*value));
  }
  return {};
}

Tester::Check Tester::await(const Statement& statement, std::string_view line) {
  const Time until = bench_.now() + bench_.patience();
  std::string answer;
  for (;;) {
    answer = VERBENA_TRY(ask(line));
    const bool waits = answer == "ok none" ||
                       (statement.kind == Kind::kState && answer.substr(3) != statement.word);
    if (!waits || bench_.now() >= until) break;
    bench_.sleep(std::chrono::milliseconds(1));
  }
  const std::string_view rest = std::string_view(answer).substr(3);
  bool same = rest.substr(0, std::min(rest.find(' '), rest.size())) == statement.word;
  for (const auto& [name, value] : statement.fields) {
    const auto came = answer_field(answer, name);
    if (!came) return wrong(fmt::format("there is no '{}' in '{}'", name, rest));
    const auto wanted = number(value, name);
    same = same && (wanted ? parse_number(*came).value_or(~*wanted) == *wanted : *came == value);
  }
  if (!same) return wrong(fmt::format("came '{}'", rest));
  return {};
}

Tester::Check Tester::no_completion() {
  bench_.sleep(bench_.silence());
  const std::string answer = VERBENA_TRY(ask("poll"));
  if (answer != "ok none") return wrong(fmt::format("came '{}'", answer.substr(3)));
  return {};
}

// Numbers.

Result<std::uint64_t> Tester::number(std::string_view text, std::string_view field) const {
  if (!text.empty() && text.front() >= '0' && text.front() <= '9') return parse_number(text);
  const std::size_t sign = std::min(text.find_first_of("+-"), text.size());
  const std::string_view name = text.substr(0, sign);
  auto symbol = symbols_.find(fmt::format("{}.{}", name, field == "inv" ? "rkey" : field));
  if (symbol == symbols_.end()) symbol = symbols_.find(name);
  if (symbol == symbols_.end()) return wrong(fmt::format("'{}' is no number of '{}'", text, field));
  if (sign == text.size()) return symbol->second;
  const std::uint64_t more = VERBENA_TRY(parse_number(text.substr(sign + 1)));
  return text[sign] == '+' ? symbol->second + more : symbol->second - more;
}

Result<std::uint64_t> Tester::number_of(const Statement& statement, std::string_view field,
                                        std::uint64_t otherwise) const {
  const auto text = statement.field(field);
  if (!text) return otherwise;
  return number(*text, field);
}

std::uint32_t Tester::base_psn(Operation operation, bool from_tester) const {
  if (operation == Operation::kCongestion) return 0;  // in no sequence
  return is_response(operation) != from_tester ? rq_psn_ : sq_psn_;
}

}  // namespace verbena::conformance
