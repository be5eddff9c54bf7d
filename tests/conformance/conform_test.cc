// SPDX-License-Identifier: Apache-2.0
//
// Every scenario, on our NIC in the simulator.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "conformance/scenario.h"
#include "conformance/sim_bench.h"
#include "conformance/tester.h"
#include "wire/packet.h"

namespace verbena::conformance {
namespace {

std::vector<Scenario> scenarios_of(const ScenarioFile& file) {
  auto scenarios = parse_scenarios(file.text);
  if (!scenarios) {
    ADD_FAILURE() << file.name << ": " << scenarios.error().message;
    return {};
  }
  return std::move(*scenarios);
}

class Conformance : public testing::TestWithParam<ScenarioFile> {};

TEST_P(Conformance, OurNicKeepsTheRule) {
  const std::vector<Scenario> scenarios = scenarios_of(GetParam());
  SimBench bench;
  std::uint32_t number = 0;
  const std::string failure = bench.play([&](Bench& inside) {
    for (const Scenario& scenario : scenarios) {
      const Verdict verdict = Tester(inside, ++number).run(scenario);
      EXPECT_EQ(verdict.kind, Verdict::Kind::kPassed)
          << GetParam().name << ", " << scenario.name << ": " << verdict.why;
    }
  });
  EXPECT_EQ(failure, "");
}

INSTANTIATE_TEST_SUITE_P(Rules, Conformance, testing::ValuesIn(scenario_files()),
                         [](const auto& rule) {
                           std::string name(rule.param.name);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

/// A subject whose machine sends packets for others without an end.
class NoisyBench final : public Bench {
 public:
  [[nodiscard]] Time now() override { return now_; }
  void sleep(Duration duration) override { now_ += duration; }
  [[nodiscard]] wire::Address address() const override { return {}; }
  void send(Bytes, bool, std::uint8_t) override {}
  [[nodiscard]] std::optional<std::vector<std::byte>> receive(Time) override {
    now_ += std::chrono::microseconds(10);
    wire::Packet packet;
    packet.bth.opcode = wire::Opcode::kRcAcknowledge;
    packet.bth.destination_qp = 2;
    std::vector<std::byte> bytes(wire::encoded_size(packet));
    wire::encode(packet, bytes);
    return bytes;
  }
  [[nodiscard]] Result<std::string> ask(std::string_view) override { return "ok qpn=1"; }
  [[nodiscard]] Duration silence() const override { return std::chrono::milliseconds(1); }
  [[nodiscard]] Duration patience() const override { return std::chrono::milliseconds(1); }

 private:
  Time now_{};
};

TEST(Scenarios, PacketsForOthersAreNoAnswerAndEndNoWait) {
  const auto scenarios = parse_scenarios(
      "rule a: b\nscenario nothing for us\nqp rc\n< nothing\n"
      "scenario no answer\nqp rc\n< RC_ACK\n");
  ASSERT_TRUE(scenarios);
  NoisyBench bench;
  EXPECT_EQ(Tester(bench, 1).run((*scenarios)[0]).kind, Verdict::Kind::kPassed);
  EXPECT_EQ(Tester(bench, 1).run((*scenarios)[1]).why, "line 7: nothing came");
}

TEST(Scenarios, AFileIsNamedAsItsRule) {
  for (const ScenarioFile& file : scenario_files()) {
    for (const Scenario& scenario : scenarios_of(file)) EXPECT_EQ(scenario.rule, file.name);
  }
}

/// A tester that accepts everything would be of no use: each kind of statement fails when the
/// subject does something else.
TEST(Scenarios, WhatIsNotSoFails) {
  constexpr std::string_view kFalse = R"(rule none: each of these is false
scenario another PSN
qp rc
recv
> RC_SEND_ONLY
< RC_ACK psn=1
scenario another syndrome
qp rc
recv
> RC_SEND_ONLY
< RC_ACK psn=0 syndrome=nak-access
scenario no notification
qp rc
recv
> RC_SEND_ONLY
< CNP psn=0
scenario a notification
qp rc
recv
> RC_SEND_ONLY ce
< RC_ACK psn=0
scenario another opcode
qp rc
recv
> RC_SEND_ONLY
< RC_READ_RESPONSE_ONLY psn=0
scenario another MSN
qp rc
recv
> RC_SEND_ONLY
< RC_ACK psn=0 msn=2
scenario no answer
qp rc
recv
> RC_SEND_ONLY icrc=wrong
< RC_ACK psn=0
scenario an answer
qp rc
recv
> RC_SEND_ONLY
< nothing
scenario other bytes sent
qp rc
post write length=8 data=1
< RC_WRITE_ONLY psn=0 data=0
scenario other bytes received
qp rc
recv
> RC_SEND_ONLY data=5
< RC_ACK psn=0
memory recv0 length=16 is=6
scenario another completion
qp rc
recv
> RC_SEND_ONLY
< RC_ACK psn=0
completion recv status=flushed
scenario no completion
qp rc
completion recv status=success
scenario a completion
qp rc
recv
> RC_SEND_ONLY
< RC_ACK psn=0
no completion
scenario another state
qp rc
state ERR
scenario no event
qp rc
event qp-fatal
scenario too early
qp rc
recv
> RC_SEND_ONLY
< RC_ACK psn=0 after=1s
scenario a wrong flag
qp rc
post write length=8
< RC_WRITE_ONLY psn=0 noack
)";
  const auto scenarios = parse_scenarios(kFalse);
  ASSERT_TRUE(scenarios) << scenarios.error().message;
  EXPECT_EQ(scenarios->size(), 17U);
  SimBench bench;
  std::uint32_t number = 0;
  EXPECT_EQ(bench.play([&](Bench& inside) {
    for (const Scenario& scenario : *scenarios)
      EXPECT_EQ(Tester(inside, ++number).run(scenario).kind, Verdict::Kind::kFailed)
          << scenario.name;
  }),
            "");
}

}  // namespace
}  // namespace verbena::conformance
