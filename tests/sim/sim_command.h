// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace verbena::sim {

/// Adds `verbena sim` to the command line; it runs while the line is parsed. `status` becomes 0
/// when all runs were right, 1 when one failed, 2 for wrong usage, and outlives the parse.
void add_sim_command(CLI::App& app, int& status);

}  // namespace verbena::sim
