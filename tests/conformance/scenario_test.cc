// SPDX-License-Identifier: Apache-2.0
#include "conformance/scenario.h"

#include <gtest/gtest.h>

#include "conformance/values.h"

namespace verbena::conformance {
namespace {

using namespace std::chrono_literals;

TEST(Scenario, IsParsed) {
  const auto parsed = parse_scenarios(
      "# a comment\n"
      "rule responder-ack: What was received is acknowledged.\n"
      "\n"
      "scenario one packet\n"
      "qp rc mtu=1024  # behind a statement\n"
      "> RC_SEND_ONLY psn=3 se\n"
      "< nothing for=5ms\n"
      "scenario another\n"
      "state RTS");
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->size(), 2U);
  const Scenario& first = parsed->front();
  EXPECT_EQ(first.rule, "responder-ack");
  EXPECT_EQ(first.about, "What was received is acknowledged.");
  EXPECT_EQ(first.name, "one packet");
  ASSERT_EQ(first.statements.size(), 3U);
  EXPECT_EQ(first.statements[0].kind, Statement::Kind::kQueuePair);
  EXPECT_EQ(first.statements[1].line, 6);
  EXPECT_EQ(first.statements[1].field("psn"), "3");
  EXPECT_EQ(first.statements[1].field("se"), "");
  EXPECT_FALSE(first.statements[1].has("ack"));
  EXPECT_EQ(first.statements[2].kind, Statement::Kind::kSilence);
  EXPECT_EQ(parsed->back().statements[0].word, "RTS");
}

TEST(Scenario, WhatIsWrongIsSaidWithItsLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "there is no scenario in it"},
      {"rule a: b", "there is no scenario in it"},
      {"scenario a", "line 1: a file begins with 'rule NAME: SENTENCE'"},
      {"rule a: b\nrule a: b", "line 2: a file begins with 'rule NAME: SENTENCE', once"},
      {"rule a: b\nqp rc", "line 2: statements follow 'scenario NAME'"},
      {"rule a: b\nscenario", "line 2: the scenario has no name"},
      {"rule a: b\nscenario s\nsend x", "line 3: 'send' is no statement"},
      {"rule a: b\nscenario s\n> RC_SENT", "line 3: 'RC_SENT' is no opcode"},
      {"rule a: b\nscenario s\n>", "line 3: a word is missing behind '>'"},
      {"rule a: b\nscenario s\nqp rc mtuu=1", "line 3: 'mtuu' is no field of 'qp'"},
      {"rule a: b\nscenario s\nqp rc mtu=1 mtu=1", "line 3: 'mtu' stands twice"},
      {"rule a: b\nscenario s\nno packet", "line 3: only 'no completion' is known"},
  };
  for (const auto& [text, sentence] : wrong) {
    const auto parsed = parse_scenarios(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message, sentence);
  }
  EXPECT_FALSE(parse_scenarios(std::string((1 << 20) + 1, '\n')));
}

TEST(Scenario, OpcodesHaveTheTablesNames) {
  EXPECT_EQ(opcode_from("RC_WRITE_LAST_IMM"), wire::Opcode::kRcWriteLastImm);
  EXPECT_EQ(opcode_name(wire::Opcode::kRcAcknowledge), "RC_ACK");
  EXPECT_EQ(opcode_from(""), std::nullopt);
}

TEST(Values, NumbersAndDurations) {
  EXPECT_EQ(parse_number("0xFf").value_or(0), 255U);
  EXPECT_EQ(parse_number("18446744073709551615").value_or(0), ~std::uint64_t{0});
  for (const char* const text : {"", "0x", "12a", "-1", "18446744073709551616"})
    EXPECT_FALSE(parse_number(text)) << text;
  EXPECT_EQ(parse_duration("20ms").value_or(0ns), 20ms);
  EXPECT_EQ(parse_duration("7us").value_or(0ns), 7us);
  for (const char* const text : {"", "5", "ms", "5h", "99999999999999999999s"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Values, Syndromes) {
  const auto rnr = parse_syndrome("rnr-7");
  ASSERT_TRUE(rnr);
  EXPECT_TRUE(has_syndrome(*rnr, "rnr-7"));
  EXPECT_TRUE(has_syndrome(*rnr, "rnr"));
  EXPECT_FALSE(has_syndrome(*rnr, "rnr-8"));
  EXPECT_FALSE(has_syndrome(*rnr, "ack"));
  EXPECT_TRUE(has_syndrome(*parse_syndrome("ack"), "ack"));
  EXPECT_FALSE(has_syndrome(*parse_syndrome("nak-access"), "nak-invalid"));
  for (const char* const text : {"", "nak", "rnr-", "rnrx", "nak-"})
    EXPECT_FALSE(parse_syndrome(text)) << text;
}

}  // namespace
}  // namespace verbena::conformance
