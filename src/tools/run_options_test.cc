// SPDX-License-Identifier: Apache-2.0
#include "tools/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace verbena::tools {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string value_of(const std::vector<Variable>& variables, std::string_view name) {
  for (const auto& variable : variables) {
    if (variable.name == name) return variable.value;
  }
  return "(not set)";
}

TEST(RunOptions, BecomeVariables) {
  CLI::App app;
  RunOptions options;
  add_run_options(app, options);
  app.parse(
      "--addr 127.0.0.2,::1 --pcap all.pcapng --log info --faults drop=1% --patient "
      "--set limits.max_qp=9 --set icrc=strict");
  const auto variables = setting_variables(options);
  ASSERT_TRUE(variables) << variables.error().message;
  EXPECT_EQ(value_of(*variables, "VERBENA_ADDR"), "127.0.0.2,::1");
  EXPECT_THAT(value_of(*variables, "VERBENA_PCAP"), StartsWith("/"));
  EXPECT_THAT(value_of(*variables, "VERBENA_PCAP"), testing::EndsWith("/all.pcapng"));
  EXPECT_EQ(value_of(*variables, "VERBENA_LOG"), "info");
  EXPECT_EQ(value_of(*variables, "VERBENA_FAULTS"), "drop=1%");
  EXPECT_EQ(value_of(*variables, "VERBENA_PATIENT"), "on");
  EXPECT_EQ(value_of(*variables, "VERBENA_MAX_QP"), "9");
  EXPECT_EQ(value_of(*variables, "VERBENA_ICRC"), "strict");
  EXPECT_EQ(value_of(*variables, "VERBENA_CONFIG"), "(not set)");
}

TEST(RunOptions, NameOnlySettingsThatExist) {
  for (const auto* bad : {"max_qp=1", "limits.max_qp", "=1", ""}) {
    RunOptions options;
    options.set = {bad};
    const auto variables = setting_variables(options);
    ASSERT_FALSE(variables) << bad;
    EXPECT_THAT(variables.error().message, HasSubstr("KEY=VALUE"));
  }
}

TEST(RunOptions, WrongValuesAreFoundBeforeAnythingStarts) {
  const std::vector<Variable> no_file{{"VERBENA_CONFIG", ""}};
  EXPECT_TRUE(settings_with(no_file));
  const std::vector<Variable> wrong{{"VERBENA_CONFIG", ""}, {"VERBENA_LOG", "loud"}};
  const auto settings = settings_with(wrong);
  ASSERT_FALSE(settings);
  EXPECT_THAT(settings.error().message, StartsWith("VERBENA_LOG is 'loud'"));
}

TEST(RunOptions, TheLastOfEqualVariablesCounts) {
  const auto settings =
      settings_with({{"VERBENA_CONFIG", ""}, {"VERBENA_MTU", "256"}, {"VERBENA_MTU", "512"}});
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->nic.max_mtu, 512U);
}

}  // namespace
}  // namespace verbena::tools
