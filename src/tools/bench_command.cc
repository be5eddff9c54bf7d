// SPDX-License-Identifier: Apache-2.0
//
// `verbena bench`: starts the runner of bench/, which is a Python program and reads the options
// itself.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/commands.h"
#include "tools/exit_status.h"

namespace verbena::tools {

namespace {

namespace fs = std::filesystem;

/// Beside the folder of the command, in a build tree as in an installation.
constexpr const char* kRunner = "../share/verbena/bench/runner";

int bench(const std::vector<std::string>& options) {
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  const fs::path runner = (command.parent_path() / kRunner).lexically_normal();
  if (error || !fs::exists(runner / "__main__.py", error)) {
    complain(fmt::format("the benchmarks are not installed: there is no {}", runner.string()));
    return kFailure;
  }
  std::vector<std::string> words{"python3", runner.string(), "--verbena", command.string()};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  complain(errno == ENOENT ? "the benchmarks need python3; as root: apt-get install python3"
                           : fmt::format("cannot start python3: {}", std::strerror(errno)));
  return kFailure;
}

}  // namespace

void add_bench_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand(
      "bench", "Measure the software NIC beside its peers and the machine's limits");
  command->prefix_command();
  command->set_help_flag();
  command->callback([command, &invocation] { invocation.status = bench(command->remaining()); });
}

}  // namespace verbena::tools
