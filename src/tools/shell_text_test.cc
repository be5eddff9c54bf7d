// SPDX-License-Identifier: Apache-2.0
#include "tools/shell_text.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

namespace verbena::tools {
namespace {

const std::vector<Variable> kVariables{{"LD_PRELOAD", "/a b/c.so"},
                                       {"VERBENA_FAULTS", "it's \"1%\" $HOME `x` \\n"}};

/// What a shell prints for `script`.
std::string shell(const std::string& script) {
  FILE* pipe = popen(script.c_str(), "r");
  std::string output;
  if (pipe == nullptr) return "no shell";
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  return pclose(pipe) == 0 ? output : "failed: " + output;
}

TEST(ShellText, AShellReadsBackWhatWasMeant) {
  const std::vector<Variable> variables{{"ODD", kVariables[1].value}};
  EXPECT_EQ(shell(as_shell(variables) + "printf %s \"$ODD\""), kVariables[1].value);
}

TEST(ShellText, SystemdGetsOneQuotedWordALine) {
  EXPECT_EQ(as_systemd(kVariables),
            "Environment=\"LD_PRELOAD=/a b/c.so\"\n"
            "Environment=\"VERBENA_FAULTS=it's \\\"1%%\\\" $HOME `x` \\\\n\"\n");
}

TEST(ShellText, JsonHoldsTheSame) {
  const auto object = nlohmann::json::parse(as_json(kVariables));
  EXPECT_EQ(object.size(), 2U);
  EXPECT_EQ(object.at("LD_PRELOAD"), "/a b/c.so");
  EXPECT_EQ(object.at("VERBENA_FAULTS"), kVariables[1].value);
}

}  // namespace
}  // namespace verbena::tools
