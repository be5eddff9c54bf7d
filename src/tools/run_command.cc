// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tools/commands.h"
#include "tools/exit_status.h"
#include "tools/program.h"
#include "tools/run_options.h"

namespace verbena::tools {

namespace {

constexpr const char* kFooter =
    R"(PROGRAM runs as it is, in this process, with libverbena.so preloaded; so do the programs that it
starts. It finds the device vrb0. What follows PROGRAM is its own.

Examples:
  verbena run ibv_rc_pingpong -g 0 &  verbena run ibv_rc_pingpong -g 0 localhost
  verbena run --addr 192.168.7.1 ib_send_lat         reachable from other machines
  verbena run --faults 'drop=1%' --log info -- ib_write_bw localhost
  verbena run gdb --args ./my_program

Exit status: the program's own; 125 when Verbena failed, 126 when PROGRAM cannot run on it (static,
setuid, linked to musl, not executable), 127 when there is no such program.)";

int fail_with(const Error& error, int status) {
  complain(error.message.empty() ? std::make_error_code(error.condition).message() : error.message);
  return status;
}

int run(const RunOptions& options, const std::vector<std::string>& command) {
  if (command.empty()) {
    complain("which program? Try: verbena run ibv_devinfo -v");
    return kRunFailed;
  }
  const char* path = std::getenv("PATH");
  const auto program = find_program(command.front(), path != nullptr ? path : "/usr/bin:/bin");
  if (!program) {
    const bool missing = program.error().condition == std::errc::no_such_file_or_directory;
    return fail_with(program.error(), missing ? kNotFound : kCannotRun);
  }
  const auto environment = run_environment(options, program->runtimes);
  if (!environment) return fail_with(environment.error(), kRunFailed);
  for (const auto& variable : *environment) {
    setenv(variable.name.c_str(), variable.value.c_str(), 1);
  }
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(program->path.c_str(), arguments.data());
  complain(fmt::format("cannot start {}: {}", program->path, std::strerror(errno)));
  return kCannotRun;
}

}  // namespace

void add_run_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("run", "Run a program on the software NIC");
  command->footer(kFooter);
  auto options = std::make_shared<RunOptions>();
  // For the help only: split_command_line() takes the program off before.
  command->add_option("PROGRAM", "The program and its own arguments; -- may stand before it");
  add_run_options(*command, *options);
  command->callback(
      [options, &invocation] { invocation.status = run(*options, invocation.program); });
}

}  // namespace verbena::tools
