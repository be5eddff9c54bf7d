// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace verbena::tools {

/// What the command line said beside the options, and what came of it.
struct Invocation {
  std::vector<std::string> program{};  ///< `verbena run … PROGRAM ARGUMENTS`
  int status = 0;                      ///< the exit status, set by the subcommand that ran
};

// Each adds its subcommand, with its help, to `app`; it runs while the line is parsed. `invocation`
// outlives the parse.
void add_run_command(CLI::App& app, Invocation& invocation);
void add_env_command(CLI::App& app, Invocation& invocation);
void add_devices_command(CLI::App& app, Invocation& invocation);
void add_demo_command(CLI::App& app, Invocation& invocation);
void add_bench_command(CLI::App& app, Invocation& invocation);
void add_doctor_command(CLI::App& app, Invocation& invocation);
void add_settings_command(CLI::App& app, Invocation& invocation);
void add_counters_command(CLI::App& app, Invocation& invocation);
void add_port_command(CLI::App& app, Invocation& invocation);
void add_gid_command(CLI::App& app, Invocation& invocation);

/// Cuts `verbena run --log info ib_write_bw -a` into Verbena's own part and the program with its
/// arguments, which begins after `--`, or at the first word that is neither an option nor an
/// option's value. Other subcommands have no program.
struct CommandLine {
  std::vector<std::string> own{};
  std::vector<std::string> program{};
};
[[nodiscard]] CommandLine split_command_line(const std::vector<std::string>& arguments);

/// One sentence on standard error, beginning "verbena: ".
void complain(std::string_view sentence);

}  // namespace verbena::tools
