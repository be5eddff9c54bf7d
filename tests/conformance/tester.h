// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/bench.h"
#include "conformance/scenario.h"
#include "wire/packet.h"

namespace verbena::conformance {

/// What came of a scenario.
struct Verdict {
  enum class Kind : std::uint8_t { kPassed, kFailed, kSkipped };
  Kind kind = Kind::kPassed;
  std::string why{};  ///< for a failure with the line
};

/// Plays a scenario's part of the wire and holds what comes against it.
class Tester {
 public:
  /// `number` is of the tester's queue pair: another one each time, so that what a subject still
  /// has to say from the time before is not taken for an answer.
  Tester(Bench& bench, std::uint32_t number) : bench_(bench), number_(number) {}

  [[nodiscard]] Verdict run(const Scenario& scenario);

  static constexpr std::uint32_t kQkey = 0x11223344;  ///< of both ends, unless a scenario says

 private:
  using Check = Result<void>;  ///< invalid_argument: what is wrong; not_supported: of the subject

  [[nodiscard]] Check execute(const Statement& statement);
  [[nodiscard]] Check open(const Statement& statement);
  [[nodiscard]] Check send(const Statement& statement);
  [[nodiscard]] Result<wire::Packet> make_packet(const Statement& statement);
  [[nodiscard]] Check fill_headers(const Statement& statement, wire::Packet& packet);
  [[nodiscard]] Check fill_bth(const Statement& statement, wire::Packet& packet);
  [[nodiscard]] Check expect(const Statement& statement);
  [[nodiscard]] Check compare(const Statement& statement, const wire::Packet& packet);
  [[nodiscard]] Check compare_payload(const Statement& statement, const wire::Packet& packet);
  [[nodiscard]] Check silence(const Statement& statement);
  [[nodiscard]] Check tell(const Statement& statement, std::string_view verb);
  [[nodiscard]] Check bind(const Statement& statement);
  /// Until the answer to `line` has all fields that the statement has, and begins with its word.
  [[nodiscard]] Check await(const Statement& statement, std::string_view line);
  [[nodiscard]] Check no_completion();

  [[nodiscard]] Result<std::string> ask(std::string_view line);
  [[nodiscard]] std::optional<std::vector<std::byte>> next_packet(Time until);
  /// A number, or a symbol of the subject's and a number: "region+16".
  [[nodiscard]] Result<std::uint64_t> number(std::string_view text, std::string_view field) const;
  [[nodiscard]] Result<std::uint64_t> number_of(const Statement& statement, std::string_view field,
                                                std::uint64_t otherwise) const;
  [[nodiscard]] std::uint32_t base_psn(wire::Operation operation, bool from_tester) const;

  Bench& bench_;
  std::uint32_t number_;
  std::map<std::string, std::uint64_t, std::less<>> symbols_;  ///< "region.address", "qpn"
  std::uint32_t rq_psn_ = 0;  ///< the first that the subject expects
  std::uint32_t sq_psn_ = 0;  ///< its own first
  std::uint32_t mtu_ = 1024;
  std::vector<std::byte> payload_{};
  Time last_{};  ///< when the last packet was sent or seen
};

}  // namespace verbena::conformance
