// SPDX-License-Identifier: Apache-2.0
//
// `verbena port` and `verbena gid`: changes to the port of a NIC that runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "nic/fabric_visit.h"
#include "nic/settings.h"
#include "tools/address_option.h"
#include "tools/commands.h"
#include "tools/exit_status.h"

namespace verbena::tools {

namespace {

constexpr const char* kPortFooter = R"(Examples:
  verbena port down          pull the cable of the NIC that your programs are using
  verbena port up --addr 127.0.0.9

All programs at the address see it, and those that come while one of them runs. A port that is down
sends and receives nothing: requests fail when their retries are used up. Programs get the events
IBV_EVENT_PORT_ERR and IBV_EVENT_PORT_ACTIVE.

Exit status: 0; 1 with a sentence on standard error when no NIC of yours runs at the address, or
when a process did not answer (it obeys as soon as it goes on).)";

constexpr const char* kGidFooter = R"(Examples:
  verbena gid add 127.0.0.9     another address of this machine, for sgid_index
  verbena gid del 127.0.0.9

The address must be one of this machine's, and nobody else may use UDP port 4791 there. The NIC's own
address is GID 0 and stays. Queue pairs that use a deleted GID send and receive nothing any more.
Programs get the event IBV_EVENT_GID_CHANGE.

Exit status: 0; 1 with a sentence on standard error when no NIC of yours runs at the address, when
the change is impossible, or when a process did not answer (it misses an added GID; it drops a
deleted one as soon as it goes on).)";

using Change = nic::FabricVisit::Change;

/// Visits the NIC, changes it and says what was not reached.
int change(const std::string& option, const std::function<Result<Change>(nic::FabricVisit&)>& work,
           const std::function<std::string(const Change&)>& done) {
  const auto address = running_address(option);
  auto visit = address ? nic::FabricVisit::begin(*address) : std::unexpected(address.error());
  const auto changed = visit ? work(*visit) : std::unexpected(visit.error());
  if (!changed) {
    complain(changed.error().message);
    return kFailure;
  }
  for (const Error& failure : changed->failures) complain(failure.message);
  fmt::print("{}: {}\n", wire::to_string(*address), done(*changed));
  return changed->failures.empty() ? kSuccess : kFailure;
}

int set_port(const std::string& option, bool up) {
  return change(
      option, [up](nic::FabricVisit& visit) { return visit.set_up(up); },
      [up](const Change&) { return fmt::format("the port is {}", up ? "up" : "down"); });
}

int change_gid(const std::string& option, const std::string& text, bool add) {
  const auto gid = wire::Address::from_string(text);
  if (!gid || gid->is_zero() || gid->is_multicast() || *gid == wire::Address::from_ipv4(0)) {
    complain(fmt::format("{} is no address that a GID can be", nic::quoted(text)));
    return kUsage;
  }
  return change(
      option,
      [&](nic::FabricVisit& visit) { return add ? visit.add_gid(*gid) : visit.delete_gid(*gid); },
      [&](const Change& changed) {
        return fmt::format("GID {} is {}", changed.gid_index,
                           add ? wire::to_string(*gid) : "empty now");
      });
}

}  // namespace

void add_port_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("port", "Take the port of a running NIC down, or up again");
  command->footer(kPortFooter);
  command->require_subcommand(1);
  auto option = std::make_shared<std::string>();
  for (const bool up : {false, true}) {
    auto* word = command->add_subcommand(up ? "up" : "down",
                                         up ? "Put the cable in again" : "Pull the cable");
    word->footer(kPortFooter);
    add_address_option(*word, *option);
    word->callback([option, up, &invocation] { invocation.status = set_port(*option, up); });
  }
}

void add_gid_command(CLI::App& app, Invocation& invocation) {
  struct Options {
    std::string address{};
    std::string gid{};
  };
  auto* command = app.add_subcommand(
      "gid", "Enter an address into the GID table of a running NIC, or delete it");
  command->footer(kGidFooter);
  command->require_subcommand(1);
  auto options = std::make_shared<Options>();
  for (const bool add : {true, false}) {
    auto* word = command->add_subcommand(add ? "add" : "del", add ? "Enter a GID" : "Delete a GID");
    word->footer(kGidFooter);
    word->add_option("ADDRESS", options->gid, "An IP address of this machine")->required();
    add_address_option(*word, options->address);
    word->callback([options, add, &invocation] {
      invocation.status = change_gid(options->address, options->gid, add);
    });
  }
}

}  // namespace verbena::tools
