// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <iterator>

#include "tools/commands.h"

namespace verbena::tools {

namespace {

/// Every option of `run` takes a value except the one for help.
bool takes_next_word(const std::string& option) {
  return option != "-h" && option != "--help" && option.find('=') == std::string::npos;
}

}  // namespace

CommandLine split_command_line(const std::vector<std::string>& arguments) {
  CommandLine line;
  if (arguments.empty() || arguments.front() != "run") {
    line.own = arguments;
    return line;
  }
  auto at = arguments.begin() + 1;
  line.own.push_back("run");
  while (at != arguments.end() && at->starts_with("-")) {
    if (*at == "--") {
      ++at;
      break;
    }
    const bool two = takes_next_word(*at);
    line.own.push_back(*at++);
    if (two && at != arguments.end()) line.own.push_back(*at++);
  }
  line.program.assign(at, arguments.end());
  return line;
}

void complain(std::string_view sentence) {
  std::fprintf(stderr, "verbena: %.*s\n", static_cast<int>(sentence.size()), sentence.data());
}

}  // namespace verbena::tools
