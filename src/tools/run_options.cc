// SPDX-License-Identifier: Apache-2.0
#include "tools/run_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace verbena::tools {

namespace {

/// The program may change its folder before it opens the NIC.
std::string absolute(const std::string& path) {
  std::error_code error;
  const auto full = std::filesystem::absolute(path, error);
  return error ? path : full.string();
}

}  // namespace

void add_run_options(CLI::App& command, RunOptions& options) {
  const std::string group = "Settings";
  command
      .add_option("--addr", options.addr,
                  "IP addresses or interfaces (eth0, eth0/6) of the NIC, separated by commas "
                  "(default: a loopback address)")
      ->type_name("A")
      ->group(group);
  command.add_option("--pcap", options.pcap, "Write every packet to FILE (pcapng); %p: process id")
      ->type_name("FILE")
      ->group(group);
  command.add_option("--log", options.log, "off, error, warning, info or debug")
      ->type_name("LEVEL")
      ->group(group);
  command.add_option("--faults", options.faults, "Disturb the packets by PLAN (docs/faults.md)")
      ->type_name("PLAN")
      ->group(group);
  command
      .add_flag("--patient", options.patient,
                "Wait for peers that stand still: for debuggers, on both sides")
      ->group(group);
  command.add_option("--config", options.config, "Read this settings file")
      ->type_name("FILE")
      ->group(group);
  command.add_option("--set", options.set, "Any setting of docs/settings.md (repeatable)")
      ->type_name("KEY=VALUE")
      ->group(group)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

Result<std::vector<Variable>> setting_variables(const RunOptions& options) {
  std::vector<Variable> variables;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) variables.push_back({name, value});
  };
  add("VERBENA_ADDR", options.addr);
  add("VERBENA_PCAP", options.pcap.empty() ? std::string{} : absolute(options.pcap));
  add("VERBENA_LOG", options.log);
  add("VERBENA_FAULTS", options.faults);
  add("VERBENA_PATIENT", options.patient ? "on" : "");
  add("VERBENA_CONFIG", options.config.empty() ? std::string{} : absolute(options.config));
  for (const auto& assignment : options.set) {
    const auto equals = assignment.find('=');
    const auto key = assignment.substr(0, equals);
    const auto table = nic::setting_table();
    const auto setting = std::ranges::find(table, key, &nic::Setting::key);
    if (equals == std::string::npos || setting == table.end()) {
      return fail(std::errc::invalid_argument,
                  fmt::format("--set takes KEY=VALUE with a key of docs/settings.md, not {}",
                              nic::quoted(assignment)));
    }
    variables.push_back({std::string(setting->environment), assignment.substr(equals + 1)});
  }
  return variables;
}

Result<nic::Settings> settings_with(const std::vector<Variable>& variables) {
  return nic::load_settings([&](const char* name) -> const char* {
    // The last one counts, as it would in the program.
    for (auto i = variables.rbegin(); i != variables.rend(); ++i) {
      if (i->name == name) return i->value.c_str();
    }
    return std::getenv(name);
  });
}

Result<std::vector<Variable>> run_environment(const RunOptions& options,
                                              const std::vector<std::string>& runtimes) {
  auto settings = VERBENA_TRY(setting_variables(options));
  VERBENA_TRY(settings_with(settings));
  const char* existing = std::getenv("LD_PRELOAD");
  const auto library = VERBENA_TRY(find_library());
  std::vector<Variable> variables;
  variables.push_back({"LD_PRELOAD", VERBENA_TRY(preload_value(
                                         library, runtimes, existing != nullptr ? existing : ""))});
  std::ranges::move(settings, std::back_inserter(variables));
  return variables;
}

}  // namespace verbena::tools
