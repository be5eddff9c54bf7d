// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::tools {

/// What the command's exit status says. `verbena run` speaks as env(1) and timeout(1) do, so that
/// its own failures stand apart from the program's.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;
inline constexpr int kRunFailed =
    125;  ///< Verbena's own failure: an option, a setting, a missing library
inline constexpr int kCannotRun = 126;    ///< the program is there, but cannot run on Verbena
inline constexpr int kNotFound = 127;     ///< there is no such program
inline constexpr int kInterrupted = 130;  ///< Ctrl-C (128 + SIGINT)

}  // namespace verbena::tools
