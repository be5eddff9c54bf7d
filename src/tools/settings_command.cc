// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/commands.h"
#include "tools/exit_status.h"
#include "tools/run_options.h"

namespace verbena::tools {

namespace {

constexpr const char* kFooter = R"(Examples:
  verbena settings
  VERBENA_MTU=1024 verbena settings --json
  verbena settings --set limits.max_qp=16       is this allowed?

Exit status: 0, or 1 with a sentence on standard error when something in the settings file, the
environment or the options is wrong.)";

struct SettingsOptions {
  RunOptions run{};
  bool json = false;
};

int print_settings(const SettingsOptions& options) {
  const auto variables = setting_variables(options.run);
  const auto settings = variables ? settings_with(*variables) : std::unexpected(variables.error());
  if (!settings) {
    complain(settings.error().message);
    return kFailure;
  }
  auto object = nlohmann::ordered_json::object();
  std::string text = fmt::format(
      "# {}\n", settings->file.empty() ? "no settings file" : "settings file: " + settings->file);
  for (const auto& setting : nic::setting_table()) {
    const auto value = nic::show_value(setting, *settings);
    object[std::string(setting.key)] = value;
    text += fmt::format("{:<28} {:<24} {}\n", setting.key, value.empty() ? "-" : value,
                        nic::allowed_values(setting));
  }
  if (options.json) {
    text = object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  std::fputs(text.c_str(), stdout);
  return kSuccess;
}

}  // namespace

void add_settings_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("settings", "Print all settings as they are in force");
  command->footer(kFooter);
  auto options = std::make_shared<SettingsOptions>();
  command->add_flag("--json", options->json, "Print JSON");
  add_run_options(*command, options->run);
  command->callback([options, &invocation] { invocation.status = print_settings(*options); });
}

}  // namespace verbena::tools
