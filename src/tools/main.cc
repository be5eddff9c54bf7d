// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/commands.h"
#include "tools/exit_status.h"
#ifdef VERBENA_SIM
#include "conformance/conform_command.h"
#include "sim/sim_command.h"
#endif

namespace {

constexpr const char* kFooter = R"(Examples:
  verbena demo                                 unmodified RDMA programs, measured
  verbena run ibv_devinfo -v                   any verbs program, on the software NIC
  verbena run --pcap all.pcapng ib_write_bw &
  verbena run ib_write_bw localhost            a server and its client
  verbena counters --qp                        what went over the wire, by queue pair
  verbena port down                            pull the cable while they run
  verbena bench --quick                        how fast, beside others

Settings are in ~/.config/verbena/verbena.toml and VERBENA_* variables (docs/settings.md).

Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted. `verbena run` returns the
program's own, or 125 when Verbena failed, 126 when the program cannot run on it, 127 when there is
no such program.)";

}  // namespace

int main(int argc, char** argv) {
  using namespace verbena::tools;
  CLI::App app{
      "Verbena: RDMA without the hardware. A RoCEv2 NIC in user space for unmodified verbs "
      "programs; no card, no kernel module, no root.",
      "verbena"};
  app.set_version_flag("--version", "verbena " VERBENA_VERSION);
  app.require_subcommand(1);
  app.footer(kFooter);

  Invocation invocation;
  add_run_command(app, invocation);
  add_env_command(app, invocation);
  add_devices_command(app, invocation);
  add_demo_command(app, invocation);
  add_bench_command(app, invocation);
  add_settings_command(app, invocation);
  add_doctor_command(app, invocation);
  add_counters_command(app, invocation);
  add_port_command(app, invocation);
  add_gid_command(app, invocation);
#ifdef VERBENA_SIM
  verbena::sim::add_sim_command(app, invocation.status);
  verbena::conformance::add_conform_command(app, invocation.status);
#endif

  auto line = split_command_line(std::vector<std::string>(argv + 1, argv + argc));
  invocation.program = std::move(line.program);
  const bool running = !line.own.empty() && line.own.front() == "run";
  const std::string first = line.own.empty() ? std::string() : line.own.front();
  const auto is_first = [&first](const CLI::App* one) { return one->get_name() == first; };
  if (!first.empty() && !first.starts_with('-') && app.get_subcommands(is_first).empty()) {
    fmt::print(stderr, "verbena: there is no command '{}'; verbena --help lists those there are\n",
               first);
    return kUsage;
  }
  std::ranges::reverse(line.own);  // CLI11 takes them from the back
  try {
    app.parse(line.own);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return kSuccess;  // --help, --version
    return running ? kRunFailed : kUsage;
  }
  return invocation.status;
}
