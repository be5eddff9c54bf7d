// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/commands.h"
#include "tools/exit_status.h"
#include "tools/run_options.h"
#include "tools/shell_text.h"

namespace verbena::tools {

namespace {

constexpr const char* kFooter =
    R"help(For what starts programs itself: MPI, test runners, services, debuggers.

Examples:
  eval "$(verbena env)"                         this shell and all that it starts
  verbena env --shell json                      for scripts
  verbena env --shell systemd                   lines for the [Service] section of a unit
  (eval "$(verbena env)"; mpirun -x LD_PRELOAD -n 2 ./osu_latency)

Exit status: 0, or 1 when a setting is wrong or the library is missing.)help";

struct EnvOptions {
  RunOptions run{};
  std::string shell = "sh";
};

int print_environment(const EnvOptions& options) {
  const auto variables = run_environment(options.run);
  if (!variables) {
    complain(variables.error().message);
    return kFailure;
  }
  const auto text = options.shell == "json"      ? as_json(*variables)
                    : options.shell == "systemd" ? as_systemd(*variables)
                                                 : as_shell(*variables);
  std::fputs(text.c_str(), stdout);
  return kSuccess;
}

}  // namespace

void add_env_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("env", "Print the environment that `verbena run` sets");
  command->footer(kFooter);
  auto options = std::make_shared<EnvOptions>();
  command->add_option("--shell", options->shell, "How to write it: sh, json or systemd")
      ->check(CLI::IsMember({"sh", "json", "systemd"}))
      ->type_name("NAME")
      ->capture_default_str();
  add_run_options(*command, options->run);
  command->callback([options, &invocation] { invocation.status = print_environment(*options); });
}

}  // namespace verbena::tools
