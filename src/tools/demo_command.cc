// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tools/child.h"
#include "tools/commands.h"
#include "tools/exit_status.h"
#include "tools/program.h"
#include "tools/program_pair.h"
#include "tools/program_report.h"
#include "tools/run_options.h"
#include "tools/tcp_port.h"

namespace verbena::tools {

namespace {

constexpr const char* kFooter =
    R"(Starts a server and a client of each program, as your distribution ships them, on the software NIC
of this machine, and prints what they measure. Latency is what the program calls typical: half a
round trip for ping-pongs, sends and writes, a whole one for reads and atomics.

Examples:
  verbena demo
  verbena demo --quick --json
  verbena demo --pcap demo-%p.pcapng --only ib_write_bw

Exit status: 0 when every program succeeded, 1 when one failed (its output is shown) or is missing,
130 when interrupted.)";

constexpr std::chrono::seconds kLongest{60};

struct DemoOptions {
  RunOptions run{};
  std::string only{};
  bool json = false;
  bool quick = false;
};

struct Case {
  const char* program;
  ReportKind kind;
  std::uint64_t bytes;  ///< 0: the program has no such option
  int iterations;
};

constexpr auto kPingPong = ReportKind::kPingPong;
constexpr auto kLatency = ReportKind::kLatency;
constexpr auto kBandwidth = ReportKind::kBandwidth;
constexpr std::array kCases{
    Case{"ibv_rc_pingpong", kPingPong, 4096, 5000}, Case{"ibv_ud_pingpong", kPingPong, 2048, 5000},
    Case{"ib_send_lat", kLatency, 8, 5000},         Case{"ib_write_lat", kLatency, 8, 5000},
    Case{"ib_read_lat", kLatency, 8, 5000},         Case{"ib_atomic_lat", kLatency, 0, 5000},
    Case{"ib_send_bw", kBandwidth, 65536, 20000},   Case{"ib_write_bw", kBandwidth, 65536, 20000},
    Case{"ib_read_bw", kBandwidth, 65536, 20000},   Case{"ib_atomic_bw", kBandwidth, 0, 20000},
};

struct Row {
  const Case* what = nullptr;
  std::optional<Report> report{};
  PairOutcome outcome{};
};

/// The words of one side; the server's lack only the host.
std::vector<std::string> command_of(const Case& what, const std::string& path,
                                    const std::string& device, std::uint16_t port, bool quick) {
  std::vector<std::string> words{path,
                                 "-d",
                                 device,
                                 "-p",
                                 std::to_string(port),
                                 "-n",
                                 std::to_string(quick ? what.iterations / 10 : what.iterations)};
  if (what.bytes > 0) words.insert(words.end(), {"-s", std::to_string(what.bytes)});
  if (what.kind == kPingPong) {
    words.insert(words.end(), {"-g", "0"});
  } else {
    words.emplace_back("-F");  // no word about the processor's frequency
  }
  if (what.kind == kBandwidth) words.emplace_back("--report_gbits");
  return words;
}

Row run_case(const Case& what, const std::string& path, const std::string& device,
             std::span<const Variable> variables, bool quick) {
  Row row{.what = &what};
  const auto port = free_tcp_port();
  if (!port) {
    row.outcome.failure = port.error().message;
    return row;
  }
  ProgramPair pair{.server = command_of(what, path, device, *port, quick), .port = *port};
  pair.client = pair.server;
  pair.client.emplace_back("127.0.0.1");
  row.outcome = run_pair(pair, variables, kLongest);
  if (row.outcome.failure.empty() && !row.outcome.interrupted) {
    row.report = read_report(what.kind, row.outcome.client_output);
    if (!row.report) row.outcome.failure = "the client reported no figures";
  }
  return row;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1024 && bytes % 1024 == 0) return fmt::format("{} KiB", bytes / 1024);
  return fmt::format("{} B", bytes);
}

std::string figures_text(const Row& row) {
  if (!row.report) return fmt::format("{:>24}  {}", "FAILED", row.outcome.failure);
  const auto& report = *row.report;
  std::string bandwidth;
  std::string rate;
  std::string latency;
  if (report.gigabits > 0) bandwidth = fmt::format("{:.2f} Gbit/s", report.gigabits);
  if (report.microseconds > 0) latency = fmt::format("{:.2f} us", report.microseconds);
  if (report.million_messages > 0) rate = fmt::format("{:.0f} k/s", report.million_messages * 1000);
  return fmt::format("{:>8}  {:>14}  {:>10}  {:>10}", size_text(report.bytes), bandwidth, rate,
                     latency);
}

nlohmann::ordered_json as_json(const Row& row) {
  nlohmann::ordered_json object{{"program", row.what->program}, {"ok", row.report.has_value()}};
  if (!row.report) {
    object["failure"] = row.outcome.failure;
    return object;
  }
  object["bytes"] = row.report->bytes;
  object["iterations"] = row.report->iterations;
  if (row.report->gigabits > 0) object["gigabits_per_second"] = row.report->gigabits;
  if (row.report->million_messages > 0) {
    object["messages_per_second"] = row.report->million_messages * 1e6;
  }
  if (row.report->microseconds > 0) object["latency_microseconds"] = row.report->microseconds;
  return object;
}

void show_failure(const Row& row) {
  for (const auto& [who, output] : {std::pair{"server", &row.outcome.server_output},
                                    std::pair{"client", &row.outcome.client_output}}) {
    std::fprintf(stderr, "--- %s, %s:\n%s\n", row.what->program, who,
                 output->empty() ? "(no output)" : output->c_str());
  }
}

/// The paths of the programs, in the order of kCases; an error names the packages that bring the
/// missing ones.
Result<std::vector<std::string>> find_programs(const std::string& only) {
  std::vector<std::string> paths;
  const char* path = std::getenv("PATH");
  bool any = false;
  for (const auto& what : kCases) {
    paths.emplace_back();
    if (!only.empty() && only != what.program) continue;
    any = true;
    const auto program = find_program(what.program, path != nullptr ? path : "/usr/bin:/bin");
    if (!program && program.error().condition == std::errc::no_such_file_or_directory) {
      return fail(std::errc::no_such_file_or_directory,
                  fmt::format("there is no program {}; as root: apt-get install perftest "
                              "ibverbs-utils",
                              what.program));
    }
    if (!program) return std::unexpected(program.error());
    paths.back() = program->path;
  }
  if (!any) {
    return fail(std::errc::invalid_argument,
                fmt::format("{} is not a program of the demo", nic::quoted(only)));
  }
  return paths;
}

struct DemoResult {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  int failed = 0;
  bool interrupted = false;
};

/// Runs all and prints each row of the table as it is known. On a terminal the running program is
/// shown as well.
DemoResult run_all(const DemoOptions& options, const std::vector<std::string>& paths,
                   const std::string& device, std::span<const Variable> variables) {
  DemoResult result;
  const InterruptGuard guard;
  const bool terminal = isatty(STDOUT_FILENO) == 1 && !options.json;
  if (!options.json) {
    fmt::print("{:<16} {:>8}  {:>14}  {:>10}  {:>10}\n", "PROGRAM", "SIZE", "BANDWIDTH", "MESSAGES",
               "LATENCY");
  }
  for (std::size_t i = 0; i < kCases.size() && !result.interrupted; ++i) {
    if (paths[i].empty()) continue;
    const auto& what = kCases[i];
    if (terminal) fmt::print("{:<16} …\r", what.program);
    std::fflush(stdout);
    const auto row = run_case(what, paths[i], device, variables, options.quick);
    result.interrupted = row.outcome.interrupted;
    if (result.interrupted) break;
    result.rows.push_back(as_json(row));
    if (!options.json) fmt::print("{:<16} {}\n", what.program, figures_text(row));
    std::fflush(stdout);
    if (!row.report) {
      ++result.failed;
      show_failure(row);
    }
  }
  return result;
}

int demo(const DemoOptions& options) {
  const auto complain_of = [](const Error& error) {
    complain(error.message);
    return kFailure;
  };
  const auto variables = run_environment(options.run);
  if (!variables) return complain_of(variables.error());
  const auto settings = settings_with(*variables);
  if (!settings) return complain_of(settings.error());
  const auto paths = find_programs(options.only);
  if (!paths) return complain_of(paths.error());
  const auto device = nic::device_config(*settings, 0).name;

  const auto result = run_all(options, *paths, device, *variables);
  if (result.interrupted) {
    complain("interrupted; the programs were stopped");
    return kInterrupted;
  }
  if (options.json) {
    const nlohmann::ordered_json object{
        {"device", device}, {"results", result.rows}, {"failed", result.failed}};
    std::puts(object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else if (result.failed == 0) {
    fmt::print(
        "\nUnmodified programs, on the software NIC {}, over RoCEv2 on loopback UDP.\n"
        "Your own: verbena run PROGRAM …   (verbena run --help; verbena env for what starts "
        "programs itself)\n",
        device);
  } else {
    complain(fmt::format("{} of {} programs failed", result.failed, result.rows.size()));
  }
  return result.failed == 0 ? kSuccess : kFailure;
}

}  // namespace

void add_demo_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("demo", "Run unmodified RDMA programs and show their figures");
  command->footer(kFooter);
  auto options = std::make_shared<DemoOptions>();
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--quick", options->quick, "A tenth of the iterations");
  command->add_option("--only", options->only, "One of the programs")->type_name("PROGRAM");
  add_run_options(*command, options->run);
  command->callback([options, &invocation] { invocation.status = demo(*options); });
}

}  // namespace verbena::tools
