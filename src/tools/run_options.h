// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "nic/settings.h"
#include "tools/preload.h"

namespace CLI {
class App;
}

namespace verbena::tools {

/// The options that `run`, `env`, `devices`, `demo` and `settings` share: settings for the NIC.
struct RunOptions {
  std::string config;
  std::string addr;
  std::string pcap;
  std::string log;
  std::string faults;
  bool patient = false;
  std::vector<std::string> set;  ///< KEY=VALUE
};

void add_run_options(CLI::App& command, RunOptions& options);

/// The settings' variables that the options ask for. invalid_argument for a KEY that is none.
[[nodiscard]] Result<std::vector<Variable>> setting_variables(const RunOptions& options);

/// The settings as a program would find them with `variables` set on top of this process's
/// environment: what is wrong is said here, before anything is started.
[[nodiscard]] Result<nic::Settings> settings_with(const std::vector<Variable>& variables);

/// All variables to set for a program: LD_PRELOAD and the settings.
[[nodiscard]] Result<std::vector<Variable>> run_environment(
    const RunOptions& options, const std::vector<std::string>& runtimes = {});

}  // namespace verbena::tools
