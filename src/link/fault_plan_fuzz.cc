// SPDX-License-Identifier: Apache-2.0
//
// Any text as a fault plan: a plan that parses says the same in its own words, and an error is one
// sentence.
#include <cstdint>

#include "base/check.h"
#include "link/fault_plan.h"

using namespace verbena;
using namespace verbena::link;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto plan = parse_fault_plan(text);
  if (!plan) {
    VERBENA_CHECK(plan.error().condition == std::errc::invalid_argument);
    VERBENA_CHECK(plan.error().message.find('\n') == std::string::npos);
    return 0;
  }
  VERBENA_CHECK(plan->rules.size() <= FaultPlan::kMaxRules);
  VERBENA_CHECK(plan->delay_min <= plan->delay_max);
  const auto again = parse_fault_plan(to_string(*plan));
  VERBENA_CHECK(again && *again == *plan);
  return 0;
}
