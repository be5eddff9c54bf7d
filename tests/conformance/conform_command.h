// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace verbena::conformance {

/// Adds `verbena conform` to the command line; it runs while the line is parsed. `status` becomes 0
/// when all scenarios passed, 1 when one failed or the peer cannot be reached, 2 for wrong usage,
/// and outlives the parse.
void add_conform_command(CLI::App& app, int& status);

}  // namespace verbena::conformance
