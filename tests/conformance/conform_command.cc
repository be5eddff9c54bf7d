// SPDX-License-Identifier: Apache-2.0
#include "conformance/conform_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "conformance/live_bench.h"
#include "conformance/scenario.h"
#include "conformance/sim_bench.h"
#include "conformance/tester.h"

namespace verbena::conformance {
namespace {

constexpr const char* kFooter =
    R"(Without HOST the software NIC itself is looked at, in a simulation. With HOST it is any RoCEv2 device:
start verbena-conform-subject there first (on the software NIC: verbena run verbena-conform-subject).

Examples:
  verbena conform                          this NIC, in a simulation
  verbena conform 192.168.7.2              the peer at that address
  verbena conform 127.0.0.1 --only rnr     scenarios with that in "RULE: NAME"
  verbena conform --file mine.txt          your own scenarios; docs/conformance.md has the language

Exit status: 0 when every scenario passed or was skipped with a reason, 1 when one failed or the peer
cannot be reached, 2 wrong usage.)";

constexpr std::uint32_t kFirstNumber = 0x100;

struct Options {
  std::string host{};
  std::uint16_t port = LiveBench::kPort;
  std::string from{};
  std::string only{};
  std::vector<std::string> skip{};
  std::vector<std::string> files{};
  int silence_ms = 100;
  bool list = false;
  bool json = false;
};

struct Row {
  Scenario scenario;
  Verdict verdict{};
};

const char* name_of(Verdict::Kind kind) {
  switch (kind) {
    case Verdict::Kind::kPassed: return "passed";
    case Verdict::Kind::kFailed: return "failed";
    case Verdict::Kind::kSkipped: return "skipped";
  }
  return "?";
}

std::string title(const Scenario& scenario) {
  return fmt::format("{}: {}", scenario.rule, scenario.name);
}

Result<void> add_scenarios(std::string_view file, std::string_view text, const Options& options,
                           std::vector<Row>& rows) {
  auto scenarios = parse_scenarios(text);
  if (!scenarios)
    return fail(scenarios.error().condition,
                fmt::format("{}: {}", file, scenarios.error().message));
  for (Scenario& scenario : *scenarios) {
    const std::string name = title(scenario);
    const auto has = [&](const std::string& word) { return name.contains(word); };
    if (has(options.only) && std::ranges::none_of(options.skip, has))
      rows.push_back({.scenario = std::move(scenario)});
  }
  return {};
}

Result<std::vector<Row>> choose(const Options& options) {
  std::vector<Row> rows;
  for (const std::string& name : options.files) {
    const std::ifstream file(name);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) return fail(std::errc::no_such_file_or_directory, name + " cannot be read");
    VERBENA_TRY(add_scenarios(name, text.str(), options, rows));
  }
  for (const ScenarioFile& file : scenario_files()) {
    if (options.files.empty()) VERBENA_TRY(add_scenarios(file.name, file.text, options, rows));
  }
  if (rows.empty()) return fail(std::errc::invalid_argument, "no scenario has that name");
  return rows;
}

void show(const Row& row) {
  fmt::print("{:<8} {}\n", name_of(row.verdict.kind), title(row.scenario));
  if (!row.verdict.why.empty()) fmt::print("         {}\n", row.verdict.why);
  std::fflush(stdout);
}

void run_all(Bench& bench, std::vector<Row>& rows, bool silent) {
  std::uint32_t number = kFirstNumber;
  for (Row& row : rows) {
    row.verdict = Tester(bench, ++number).run(row.scenario);
    if (!silent) show(row);
  }
}

/// The subject's words for itself.
Result<std::string> run_on(const Options& options, std::vector<Row>& rows) {
  if (options.host.empty()) {
    SimBench bench;
    const std::string failure =
        bench.play([&](Bench& inside) { run_all(inside, rows, options.json); });
    if (!failure.empty()) return fail(std::errc::state_not_recoverable, failure);
    return "the software NIC, simulated";
  }
  LiveBench::Options live{.host = options.host, .port = options.port};
  live.silence = std::chrono::milliseconds(options.silence_ms);
  if (!options.from.empty()) live.from = VERBENA_TRY(wire::Address::from_string(options.from));
  const auto bench = VERBENA_TRY(LiveBench::connect(live));
  run_all(*bench, rows, options.json);
  return bench->subject();
}

int print_list(const std::vector<Row>& rows) {
  for (const Row& row : rows) fmt::print("{}\n", title(row.scenario));
  return 0;
}

int report(const std::string& subject, const std::vector<Row>& rows, bool json) {
  std::array<std::size_t, 3> counts{};
  for (const Row& row : rows) ++counts[static_cast<std::size_t>(row.verdict.kind)];
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Row& row : rows)
      list.push_back({{"rule", row.scenario.rule},
                      {"about", row.scenario.about},
                      {"scenario", row.scenario.name},
                      {"verdict", name_of(row.verdict.kind)},
                      {"why", row.verdict.why}});
    const nlohmann::ordered_json object = {{"subject", subject},
                                           {"passed", counts[0]},
                                           {"failed", counts[1]},
                                           {"skipped", counts[2]},
                                           {"scenarios", list}};
    std::fputs((object.dump(1) + "\n").c_str(), stdout);
  } else {
    fmt::print("{}\n{} passed, {} failed, {} skipped\n", subject, counts[0], counts[1], counts[2]);
  }
  return counts[1] == 0 ? 0 : 1;
}

int run(const Options& options) {
  auto rows = choose(options);
  if (!rows) {
    fmt::print(stderr, "verbena: {}\n", rows.error().message);
    return 2;
  }
  if (options.list) return print_list(*rows);
  const auto subject = run_on(options, *rows);
  if (!subject) {
    fmt::print(stderr, "verbena: {}\n", subject.error().message);
    return 1;
  }
  return report(*subject, *rows, options.json);
}

}  // namespace

void add_conform_command(CLI::App& app, int& status) {
  auto* command = app.add_subcommand(
      "conform", "Hold a RoCEv2 device against the rules of the specification, packet by packet");
  command->footer(kFooter);
  auto options = std::make_shared<Options>();
  command->add_option("host", options->host, "Where verbena-conform-subject runs");
  command->add_option("--port", options->port, "Its TCP port (47911)");
  command->add_option("--from", options->from,
                      "Address of this machine to send from, without a NIC");
  command->add_option("--only", options->only, "Scenarios with this in \"RULE: NAME\"");
  command->add_option("--skip", options->skip, "None with this in it");
  command->add_option("--file", options->files, "Scenarios from a file instead of our own");
  command
      ->add_option("--silence", options->silence_ms, "Milliseconds after which nothing comes (100)")
      ->check(CLI::Range(1, 10'000));
  command->add_flag("--list", options->list, "Print the scenarios' names");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace verbena::conformance
