// SPDX-License-Identifier: Apache-2.0
//
// `verbena counters`: what the NICs at an address have counted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "engine/counters.h"
#include "engine/transport.h"
#include "nic/fabric_visit.h"
#include "nic/port_holder.h"
#include "tools/address_option.h"
#include "tools/commands.h"
#include "tools/exit_status.h"

namespace verbena::tools {

namespace {

constexpr const char* kFooter = R"(Examples:
  verbena counters              totals of the NIC, and of each process there
  verbena counters --qp         and of each queue pair
  verbena counters --watch      again each second, until the last program has gone
  verbena counters --json --all

Totals include processes that are gone, as long as one is at the address; a process's are since it
came. Counters that are zero are left out unless --all is given; JSON has all. Programs find the same
numbers in /sys/class/infiniband/vrb0/ports/1/hw_counters.

Exit status: 0; 1 with a sentence on standard error when no NIC of yours runs at the address, or when
a process did not tell of its queue pairs.)";

struct CountersOptions {
  std::string address{};
  bool queue_pairs = false;
  bool all = false;
  bool json = false;
  bool watch = false;
};

struct ProcessCounters {
  nic::FabricVisit::Tenant tenant{};
  std::vector<nic::QueuePairReport> queue_pairs{};
  std::string problem{};  ///< why there are no queue pairs
};

struct Snapshot {
  wire::Address address{};
  nic::PortReport port{};
  std::vector<ProcessCounters> processes{};
};

Result<Snapshot> look(const CountersOptions& options, const wire::Address& address) {
  const nic::FabricVisit visit = VERBENA_TRY(nic::FabricVisit::begin(address));
  Snapshot snapshot{.address = address, .port = visit.port()};
  for (const auto& tenant : visit.tenants()) {
    ProcessCounters& process = snapshot.processes.emplace_back(ProcessCounters{.tenant = tenant});
    if (!options.queue_pairs) continue;
    auto reports = visit.queue_pairs(tenant);
    if (reports) {
      process.queue_pairs = std::move(*reports);
    } else {
      process.problem = reports.error().message;
    }
  }
  return snapshot;
}

// --- Text

std::string table_of(const engine::CounterValues& values, bool all, std::string_view indent) {
  std::string text;
  for (std::size_t i = 0; i < engine::kCounters; ++i) {
    if (values[i] != 0 || all)
      text += fmt::format("{}{:<26} {:>16}\n", indent, engine::kCounterTable[i].name, values[i]);
  }
  return text;
}

std::string_view way_of(const nic::QueuePairReport& report) {
  return report.channel != 0 ? "shared memory" : "network";
}

std::string title_of(const nic::QueuePairReport& report) {
  std::string title = fmt::format("  queue pair 0x{:06x}, {}, {}", report.number,
                                  engine::to_string(report.type), engine::to_string(report.state));
  if (engine::is_reliable(report.type) && !report.destination.is_zero())
    title +=
        fmt::format(", {} to 0x{:06x} at {}, by {}", wire::to_string(report.source),
                    report.destination_qp, wire::to_string(report.destination), way_of(report));
  return title;
}

std::string as_text(const Snapshot& snapshot, const CountersOptions& options) {
  std::string text = fmt::format("NIC at {}, port {}\n", wire::to_string(snapshot.address),
                                 snapshot.port.state.up ? "active" : "down") +
                     table_of(engine::values_of(snapshot.port.counters), options.all, "  ");
  for (const ProcessCounters& process : snapshot.processes) {
    text += fmt::format("{}\n{}", nic::describe_process(process.tenant.pid),
                        table_of(engine::values_of(process.tenant.counters), options.all, "  "));
    for (const auto& report : process.queue_pairs)
      text +=
          fmt::format("{}\n{}", title_of(report), table_of(report.counters, options.all, "    "));
  }
  return text;
}

// --- JSON

nlohmann::ordered_json as_json(const engine::CounterValues& values) {
  auto object = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < engine::kCounters; ++i)
    object[std::string(engine::kCounterTable[i].name)] = values[i];
  return object;
}

nlohmann::ordered_json as_json(const nic::QueuePairReport& report) {
  return {{"number", report.number},
          {"type", engine::to_string(report.type)},
          {"state", engine::to_string(report.state)},
          {"source", wire::to_string(report.source)},
          {"destination", wire::to_string(report.destination)},
          {"destination_qp", report.destination_qp},
          {"way", way_of(report)},
          {"counters", as_json(report.counters)}};
}

nlohmann::ordered_json as_json(const Snapshot& snapshot, bool queue_pairs) {
  auto gids = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < nic::kGids; ++i) {
    const wire::Address& gid = snapshot.port.state.gids[i];
    if (!gid.is_zero()) gids[std::to_string(i)] = wire::to_string(gid);
  }
  auto processes = nlohmann::ordered_json::array();
  for (const ProcessCounters& process : snapshot.processes) {
    nlohmann::ordered_json object{
        {"pid", process.tenant.pid},
        {"slots", process.tenant.slots},
        {"counters", as_json(engine::values_of(process.tenant.counters))}};
    if (queue_pairs && process.problem.empty()) {
      auto pairs = nlohmann::ordered_json::array();
      for (const auto& report : process.queue_pairs) pairs.push_back(as_json(report));
      object["queue_pairs"] = std::move(pairs);
    }
    processes.push_back(std::move(object));
  }
  return {{"address", wire::to_string(snapshot.address)},
          {"port", snapshot.port.state.up ? "active" : "down"},
          {"gids", std::move(gids)},
          {"counters", as_json(engine::values_of(snapshot.port.counters))},
          {"processes", std::move(processes)}};
}

// --- The command

int print_once(const CountersOptions& options, const wire::Address& address) {
  const auto snapshot = look(options, address);
  if (!snapshot) {
    complain(snapshot.error().message);
    return kFailure;
  }
  const std::string text = options.json ? as_json(*snapshot, options.queue_pairs).dump() + "\n"
                                        : as_text(*snapshot, options);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  int status = kSuccess;
  for (const ProcessCounters& process : snapshot->processes) {
    if (process.problem.empty()) continue;
    complain(process.problem);
    status = kFailure;
  }
  return status;
}

int print_counters(const CountersOptions& options) {
  const auto address = running_address(options.address);
  if (!address) {
    complain(address.error().message);
    return kFailure;
  }
  int status = print_once(options, *address);
  while (options.watch && status == kSuccess) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    // Once somebody was there, the end of the last one is the end of the watch, no failure.
    const auto there = nic::FabricVisit::begin(*address);
    if (!there && there.error().condition == std::errc::no_such_device) break;
    if (!options.json) std::fputs("\n", stdout);
    status = print_once(options, *address);
  }
  return status;
}

}  // namespace

void add_counters_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("counters", "Print what the NICs at an address have counted");
  command->footer(kFooter);
  auto options = std::make_shared<CountersOptions>();
  add_address_option(*command, options->address);
  command->add_flag("--qp", options->queue_pairs, "Each queue pair, too");
  command->add_flag("--all", options->all, "Counters that are zero, too");
  command->add_flag("--json", options->json, "Print JSON, one line each time");
  command->add_flag("--watch", options->watch, "Again each second");
  command->callback([options, &invocation] { invocation.status = print_counters(*options); });
}

}  // namespace verbena::tools
