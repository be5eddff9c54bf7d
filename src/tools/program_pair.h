// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/preload.h"

namespace verbena::tools {

/// A server that listens on a TCP port for the set-up, and its client.
struct ProgramPair {
  std::vector<std::string> server{};  ///< the first word is a path
  std::vector<std::string> client{};
  std::uint16_t port = 0;
};

struct PairOutcome {
  bool interrupted = false;
  std::string failure{};  ///< one sentence; empty when both ended with status 0
  std::string server_output{};
  std::string client_output{};
};

/// Starts the server, waits until it listens, starts the client and waits for both. Neither is left
/// running, whatever happens. Needs an InterruptGuard.
[[nodiscard]] PairOutcome run_pair(const ProgramPair& pair, std::span<const Variable> variables,
                                   std::chrono::milliseconds longest);

}  // namespace verbena::tools
