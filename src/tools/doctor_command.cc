// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "nic/live_host.h"
#include "tools/commands.h"
#include "tools/diagnosis.h"
#include "tools/exit_status.h"
#include "tools/run_options.h"

namespace verbena::tools {

namespace {

using Verdict = Finding::Verdict;

constexpr const char* kFooter =
    R"(Looks at what the software NIC and its programs need: the kernel's services and what a seccomp
filter leaves of them, limits (open files, locked memory, /dev/shm, ptrace, socket buffers), the
address and who has UDP port 4791 there, the programs of perftest and ibverbs-utils. At last each
device sends itself some data. A `note` is something that works, but slower or not for every
program; a `PROBLEM` stands in the way. What to do about it stands beneath.

Examples:
  verbena doctor
  verbena doctor --addr 192.168.7.1 --json

Exit status: 0 when nothing stands in the way, 1 when something does.)";

struct DoctorOptions {
  RunOptions run{};
  bool json = false;
};

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFine: return "ok";
    case Verdict::kNote: return "note";
    case Verdict::kProblem: break;
  }
  return "PROBLEM";
}

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  std::ranges::move(more, std::back_inserter(findings));
}

/// Everything, the settings first: without them the rest cannot be asked.
std::vector<Finding> examine(const DoctorOptions& options) {
  std::vector<Finding> findings;
  const auto variables = setting_variables(options.run);
  const auto settings = variables ? settings_with(*variables) : std::unexpected(variables.error());
  if (!settings) {
    findings.push_back({.verdict = Verdict::kProblem,
                        .subject = "settings",
                        .what = settings.error().message,
                        .remedy = "docs/settings.md has all settings and what they may be"});
    append(findings, examine_machine(1));
    return findings;
  }
  findings.push_back({.verdict = Verdict::kFine,
                      .subject = "settings",
                      .what = settings->file.empty() ? "no file; the defaults and the environment"
                                                     : settings->file,
                      .remedy = {}});
  auto addresses = settings->addresses;
  if (addresses.empty()) addresses.push_back(nic::LiveHost::default_address());
  append(findings, examine_machine(addresses.size()));
  for (const auto& address : addresses) append(findings, examine_address(address));
  const char* const path = std::getenv("PATH");
  append(findings, examine_programs(path == nullptr ? "" : path));
  for (const auto& [name, value] : *variables) setenv(name.c_str(), value.c_str(), 1);
  append(findings, examine_traffic());
  return findings;
}

std::string as_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) {
    text +=
        fmt::format("{:<8} {:<14} {}\n", word_of(finding.verdict), finding.subject, finding.what);
    if (!finding.remedy.empty()) text += fmt::format("{:<23} -> {}\n", "", finding.remedy);
  }
  const auto count = [&](Verdict verdict) {
    return std::ranges::count(findings, verdict, &Finding::verdict);
  };
  const auto problems = count(Verdict::kProblem);
  text += problems == 0 ? "\nNothing stands in the way"
                        : fmt::format("\n{} problem{}", problems, problems == 1 ? "" : "s");
  const auto notes = count(Verdict::kNote);
  text += notes == 0 ? ".\n" : fmt::format("; {} note{}.\n", notes, notes == 1 ? "" : "s");
  return text;
}

std::string as_json(const std::vector<Finding>& findings) {
  auto array = nlohmann::ordered_json::array();
  for (const auto& finding : findings) {
    array.push_back(
        {{"verdict", finding.verdict == Verdict::kProblem ? "problem" : word_of(finding.verdict)},
         {"subject", finding.subject},
         {"what", finding.what},
         {"remedy", finding.remedy}});
  }
  return array.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int diagnose(const DoctorOptions& options) {
  const std::vector<Finding> findings = examine(options);
  std::fputs((options.json ? as_json(findings) : as_text(findings)).c_str(), stdout);
  const bool stuck =
      std::ranges::find(findings, Verdict::kProblem, &Finding::verdict) != findings.end();
  return stuck ? kFailure : kSuccess;
}

}  // namespace

void add_doctor_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand(
      "doctor", "Say what on this machine stands in the way, and what to do about it");
  command->footer(kFooter);
  auto options = std::make_shared<DoctorOptions>();
  command->add_flag("--json", options->json, "Print JSON");
  add_run_options(*command, options->run);
  command->callback([options, &invocation] { invocation.status = diagnose(*options); });
}

}  // namespace verbena::tools
