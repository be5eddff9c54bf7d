// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "wire/opcode.h"

namespace verbena::conformance {

/// One line of a scenario.
struct Statement {
  enum class Kind : std::uint8_t {
    kQueuePair,     ///< qp: the subject makes and connects one
    kSend,          ///< >: the tester sends a packet
    kExpect,        ///< <: the subject must send this packet next
    kSilence,       ///< < nothing: the subject sends none for a while
    kWait,          ///< wait: time passes
    kReceive,       ///< recv: the subject posts receives
    kPost,          ///< post: the subject posts a send request
    kBind,          ///< window: the subject binds a memory window
    kCompletion,    ///< completion: the subject's next completion must be this
    kNoCompletion,  ///< no completion
    kEvent,         ///< event: the subject's next asynchronous event must be this
    kState,         ///< state: of the subject's queue pair
    kModify,        ///< modify: the subject moves its queue pair to a state
    kMemory,        ///< memory: what bytes of the subject's must be
  };
  Kind kind = Kind::kWait;
  int line = 0;
  /// What stands behind the keyword: an opcode, an operation, a state, a place in memory.
  std::string word{};
  std::vector<std::pair<std::string, std::string>> fields{};  ///< a flag has an empty value

  [[nodiscard]] std::optional<std::string_view> field(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const { return field(name).has_value(); }
};

/// Packets that are sent and expected, and what the program behind the peer does and sees: one
/// example of one rule.
struct Scenario {
  std::string rule{};   ///< its short name, "responder-psn-ahead"
  std::string about{};  ///< the rule as a sentence
  std::string name{};
  std::vector<Statement> statements{};
};

/// Parses a file of scenarios for one rule:
///
///     rule NAME: SENTENCE
///     scenario NAME
///     qp rc mtu=1024
///     > RC_SEND_ONLY psn=1 payload=16
///     < RC_ACK psn=0 syndrome=nak-sequence
///
/// docs/conformance.md describes the statements. An error says the line and what is wrong with it;
/// values are looked at when the scenario runs.
[[nodiscard]] Result<std::vector<Scenario>> parse_scenarios(std::string_view text);

/// "RC_SEND_ONLY".
[[nodiscard]] std::string opcode_name(wire::Opcode opcode);
[[nodiscard]] std::optional<wire::Opcode> opcode_from(std::string_view name);

/// A file of tests/conformance/scenarios, as it was when this was built.
struct ScenarioFile {
  std::string_view name;
  std::string_view text;
};
[[nodiscard]] std::span<const ScenarioFile> scenario_files();

}  // namespace verbena::conformance
