// SPDX-License-Identifier: Apache-2.0
#include "link/fault_plan.h"

#include <gtest/gtest.h>

namespace verbena::link {
namespace {

using namespace std::chrono_literals;

TEST(FaultPlan, EmptyTextDoesNothing) {
  EXPECT_EQ(parse_fault_plan("").value(), FaultPlan{});
  EXPECT_EQ(parse_fault_plan(" , ,").value(), FaultPlan{});
}

TEST(FaultPlan, ReadsRatesSeedAndDelays) {
  const FaultPlan plan =
      parse_fault_plan("drop=1%, reorder=0.05%,corrupt=250ppm,seed=7,delay=100%,delay_time=2us-3ms")
          .value();
  EXPECT_EQ(plan.seed, 7U);
  ASSERT_EQ(plan.rules.size(), 4U);
  EXPECT_EQ(plan.rules[0], (FaultRule{.fault = Fault::kDrop, .rate_ppm = 10'000}));
  EXPECT_EQ(plan.rules[1], (FaultRule{.fault = Fault::kReorder, .rate_ppm = 500}));
  EXPECT_EQ(plan.rules[2], (FaultRule{.fault = Fault::kCorrupt, .rate_ppm = 250}));
  EXPECT_EQ(plan.rules[3], (FaultRule{.fault = Fault::kDelay, .rate_ppm = kAlways}));
  EXPECT_EQ(plan.delay_min, 2us);
  EXPECT_EQ(plan.delay_max, 3ms);
  EXPECT_EQ(parse_fault_plan("delay_time=1s")->delay_min, 1s);
}

TEST(FaultPlan, ReadsSelectors) {
  const FaultPlan plan =
      parse_fault_plan("drop@7,duplicate@5-9,drop:ack=10%,mark:read_response@3=50%").value();
  ASSERT_EQ(plan.rules.size(), 4U);
  EXPECT_EQ(plan.rules[0], (FaultRule{.fault = Fault::kDrop, .first = 7, .last = 7}));
  EXPECT_EQ(plan.rules[1], (FaultRule{.fault = Fault::kDuplicate, .first = 5, .last = 9}));
  EXPECT_EQ(plan.rules[2], (FaultRule{.fault = Fault::kDrop,
                                      .rate_ppm = 100'000,
                                      .operation = wire::Operation::kAcknowledge}));
  EXPECT_EQ(plan.rules[3], (FaultRule{.fault = Fault::kMark,
                                      .rate_ppm = 500'000,
                                      .operation = wire::Operation::kReadResponse,
                                      .first = 3,
                                      .last = 3}));
}

TEST(FaultPlan, TextOfAPlanParsesToTheSame) {
  for (const char* text :
       {"", "seed=18446744073709551615", "drop=1%,drop@7,truncate:send@1-3=1ppm",
        "drop:write=0.0001%,delay=1%,delay_time=5ms-10s,mark:cnp=3%,reorder:fetch_add@4"}) {
    const FaultPlan plan = parse_fault_plan(text).value();
    EXPECT_EQ(parse_fault_plan(to_string(plan)).value(), plan) << to_string(plan);
  }
}

struct Wrong {
  const char* text;
  const char* part;  ///< of the sentence
};

TEST(FaultPlan, WrongItemsAreNamed) {
  const std::string many = [] {
    std::string text;
    for (std::size_t i = 0; i <= FaultPlan::kMaxRules; ++i) text += "drop=1%,";
    return text;
  }();
  for (const Wrong& wrong : {
           Wrong{"drp=1%", "'drp' is no fault"},
           Wrong{"=1%", "'' is no fault"},
           Wrong{"drop", "'drop' does not say how often"},
           Wrong{"drop=", "'drop=' has no rate"},
           Wrong{"drop=1", "'drop=1' has no rate"},
           Wrong{"drop=101%", "no rate"},
           Wrong{"drop=100.1%", "no rate"},
           Wrong{"drop=1.%", "no rate"},
           Wrong{"drop=1.00001%", "no rate"},
           Wrong{"drop=-1%", "no rate"},
           Wrong{"drop=1000001ppm", "no rate"},
           Wrong{"drop@", "no datagrams behind '@'"},
           Wrong{"drop@0", "no datagrams behind '@'"},
           Wrong{"drop@9-5", "no datagrams behind '@'"},
           Wrong{"drop@5-", "no datagrams behind '@'"},
           Wrong{"drop:nak=1%", "no kind of packet"},
           Wrong{"seed=x", "'x' is no whole number"},
           Wrong{"seed=18446744073709551616", "no whole number"},
           Wrong{"delay_time=5", "no delay_time"},
           Wrong{"delay_time=5ms-2ms", "no delay_time"},
           Wrong{"delay_time=11s", "no delay_time"},
           Wrong{"delay_time=99999999999999999999s", "no delay_time"},
           Wrong{"\x1b[31m=1%", "'?[31m' is no fault"},
           Wrong{many.c_str(), "more than 32 rules"},
       }) {
    const auto plan = parse_fault_plan(wrong.text);
    ASSERT_FALSE(plan) << wrong.text;
    EXPECT_EQ(plan.error().condition, std::errc::invalid_argument);
    EXPECT_NE(plan.error().message.find(wrong.part), std::string::npos) << plan.error().message;
  }
}

}  // namespace
}  // namespace verbena::link
