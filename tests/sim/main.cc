// SPDX-License-Identifier: Apache-2.0
// The simulator alone, for builds that need no other command (the engine's mutants).
#include <CLI/CLI.hpp>

#include "sim/sim_command.h"

int main(int argc, char** argv) {
  CLI::App app{"Verbena's simulator", "verbena-sim"};
  app.require_subcommand(1);
  int status = 0;
  verbena::sim::add_sim_command(app, status);
  CLI11_PARSE(app, argc, argv);
  return status;
}
