// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/commands.h"

namespace verbena::tools {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CommandLine, TheProgramBeginsAfterTheDashes) {
  const auto line = split_command_line({"run", "--log", "info", "--", "-odd", "--help"});
  EXPECT_THAT(line.own, ElementsAre("run", "--log", "info"));
  EXPECT_THAT(line.program, ElementsAre("-odd", "--help"));
}

TEST(CommandLine, TheProgramBeginsAtTheFirstWord) {
  const auto line =
      split_command_line({"run", "--addr=::1", "--pcap", "f", "ib_write_bw", "-a", "--", "x"});
  EXPECT_THAT(line.own, ElementsAre("run", "--addr=::1", "--pcap", "f"));
  EXPECT_THAT(line.program, ElementsAre("ib_write_bw", "-a", "--", "x"));
}

TEST(CommandLine, HelpTakesNoWord) {
  const auto line = split_command_line({"run", "--help", "ls"});
  EXPECT_THAT(line.own, ElementsAre("run", "--help"));
  EXPECT_THAT(line.program, ElementsAre("ls"));
}

TEST(CommandLine, AnOptionWithoutItsValueStaysOurs) {
  const auto line = split_command_line({"run", "--log"});
  EXPECT_THAT(line.own, ElementsAre("run", "--log"));
  EXPECT_THAT(line.program, IsEmpty());
}

TEST(CommandLine, OtherSubcommandsHaveNoProgram) {
  const auto line = split_command_line({"demo", "--quick", "x"});
  EXPECT_THAT(line.own, ElementsAre("demo", "--quick", "x"));
  EXPECT_THAT(line.program, IsEmpty());
  EXPECT_THAT(split_command_line({}).own, IsEmpty());
}

}  // namespace
}  // namespace verbena::tools
