// SPDX-License-Identifier: Apache-2.0
#include "tools/program_pair.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "tools/child.h"
#include "tools/tcp_port.h"

namespace verbena::tools {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Between looks at the kernel's list of listeners, which cannot be waited for.
constexpr milliseconds kListenPoll{5};

milliseconds left_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  return std::max(left, milliseconds{0});
}

std::string ended(const char* who, int status) {
  if (status > 128) return fmt::format("the {} was killed by signal {}", who, status - 128);
  return fmt::format("the {} ended with status {}", who, status);
}

/// False with a reason in `outcome` when the server will not listen.
bool wait_for_listener(Child& server, std::uint16_t port, Clock::time_point deadline,
                       PairOutcome& outcome) {
  while (!is_listening(port)) {
    if (const auto status = server.status()) {
      outcome.failure = ended("server", *status) + " before it listened";
    } else if (Clock::now() >= deadline) {
      outcome.failure = "the server did not listen in time";
    } else if (wait_for(std::array{server.descriptor()}, kListenPoll) == Wake::kInterrupted) {
      outcome.interrupted = true;
    } else {
      continue;
    }
    return false;
  }
  return true;
}

/// One that failed leaves the other waiting: that one gets little time, so that the first reason is
/// reported.
void wait_for_both(Child& server, Child& client, Clock::time_point deadline, PairOutcome& outcome) {
  constexpr milliseconds kAfterFailure{2000};
  for (;;) {
    const auto server_status = server.status();
    const auto client_status = client.status();
    for (const auto& [who, status] :
         {std::pair{"client", client_status}, std::pair{"server", server_status}}) {
      const int ended_with = status.value_or(0);
      if (!outcome.failure.empty() || ended_with == 0) continue;
      outcome.failure = ended(who, ended_with);
      deadline = std::min(deadline, Clock::now() + kAfterFailure);
    }
    if (server_status && client_status) return;
    if (Clock::now() >= deadline) {
      if (outcome.failure.empty()) outcome.failure = "it did not end in time";
      return;
    }
    std::vector<int> running;
    if (!server_status) running.push_back(server.descriptor());
    if (!client_status) running.push_back(client.descriptor());
    if (wait_for(running, left_until(deadline)) == Wake::kInterrupted) {
      outcome.interrupted = true;
      return;
    }
  }
}

}  // namespace

PairOutcome run_pair(const ProgramPair& pair, std::span<const Variable> variables,
                     milliseconds longest) {
  PairOutcome outcome;
  const auto deadline = Clock::now() + longest;
  auto server = Child::start(pair.server, variables);
  if (!server) {
    outcome.failure = server.error().message;
    return outcome;
  }
  if (wait_for_listener(*server, pair.port, deadline, outcome)) {
    auto client = Child::start(pair.client, variables);
    if (client) {
      wait_for_both(*server, *client, deadline, outcome);
      outcome.client_output = client->output();
    } else {
      outcome.failure = client.error().message;
    }
  }
  outcome.server_output = server->output();
  return outcome;
}

}  // namespace verbena::tools
