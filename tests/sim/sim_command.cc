// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "sim/campaign.h"
#include "sim/world.h"

namespace verbena::sim {
namespace {

constexpr const char* kFooter = R"(Examples:
  verbena sim --seeds 1..1000 --jobs 2
  verbena sim --seed 4711                 the same run again, with a line for everything in it
  verbena sim --seed 4711 --quiet         only whether it is right
  verbena sim --seeds 1..1000 --same-host all processes on one machine

Exit status: 0 when all runs were right, 1 when one failed, 2 wrong usage.)";

struct Options {
  std::optional<std::uint64_t> seed{};
  std::string seeds{};
  unsigned jobs = 1;
  std::size_t most_failures = 10;
  bool same_host = false;
  bool quiet = false;
  bool json = false;
};

/// "A..B" with A not above B.
std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_range(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const auto number = [](std::string_view digits) -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [at, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc{} || at != end || digits.empty()) return std::nullopt;
    return value;
  };
  const auto first = number(text.substr(0, dots));
  const auto last = number(text.substr(dots + 2));
  if (!first || !last || *first > *last) return std::nullopt;
  return std::pair(*first, *last);
}

nlohmann::ordered_json misdeeds_of(const RunCounters& counters) {
  nlohmann::ordered_json misdeeds = nlohmann::ordered_json::object();
  for (std::size_t i = 1; i < counters.misdeeds.size(); ++i) {
    misdeeds[std::string(to_string(static_cast<Misdeed>(i)))] = counters.misdeeds[i];
  }
  return misdeeds;
}

nlohmann::ordered_json to_json(const RunCounters& counters) {
  return {{"operations", counters.operations},
          {"receives", counters.receives},
          {"datagrams", counters.datagrams},
          {"multicasts",
           {{"posted", counters.multicasts},
            {"arrived", counters.multicast_arrived},
            {"blocked", counters.multicast_blocked}}},
          {"completions", counters.completions},
          {"connections", counters.epochs},
          {"packets", counters.packets},
          {"bytes", counters.bytes},
          {"by_ring", counters.by_ring},
          {"fetched", counters.fetched},
          {"direct", counters.direct},
          {"reads_fetched", counters.reads_fetched},
          {"piggybacks", counters.piggybacks},
          {"retransmitted", counters.retransmitted},
          {"naks", counters.naks},
          {"rnr_naks", counters.rnr_naks},
          {"shared_receives",
           {{"taken", counters.shared_receives},
            {"limits", counters.shared_limits},
            {"resizes", counters.shared_resizes},
            {"rnr_naks", counters.shared_rnr_naks},
            {"last_receives", counters.last_receives}}},
          {"extended",
           {{"ends", counters.extended},
            {"receives", counters.numbered_receives},
            {"failed_queues", counters.failed_queues}}},
          {"windows",
           {{"bound", counters.windows_bound},
            {"invalidated", counters.windows_invalidated},
            {"invalidated_remotely", counters.windows_invalidated_remotely},
            {"used", counters.windowed}}},
          {"unreliable",
           {{"posted", counters.unreliable},
            {"arrived", counters.unreliable_arrived},
            {"again", counters.unreliable_again},
            {"unready", counters.unreliable_unready},
            {"lost", counters.unreliable_lost}}},
          {"congestion",
           {{"runs", counters.congested}, {"marked", counters.marked}, {"cnps", counters.cnps}}},
          {"connecting",
           {{"attempts", counters.attempts},
            {"connected", counters.connected},
            {"refused", counters.refused},
            {"unanswered", counters.unanswered},
            {"resolved", counters.resolved}}},
          {"streams",
           {{"runs", counters.streams},
            {"bytes", counters.stream_bytes},
            {"stalls", counters.stream_stalls},
            {"failed", counters.streams_failed},
            {"troubles", counters.stream_troubles}}},
          {"faults",
           {{"dropped", counters.dropped},
            {"duplicated", counters.duplicated},
            {"reordered", counters.reordered},
            {"delayed", counters.delayed},
            {"corrupted", counters.corrupted},
            {"overflowed", counters.overflowed},
            {"cut", counters.cut},
            {"forged", counters.forged},
            {"pauses", counters.pauses},
            {"restarts", counters.restarts}}},
          {"misdeeds", misdeeds_of(counters)}};
}

int run_one(std::uint64_t seed, const Options& options) {
  std::FILE* const trace = options.quiet || options.json ? nullptr : stdout;
  const RunReport report = run_seed(seed, options.same_host, trace);
  const bool right = report.failure.empty();
  if (options.json) {
    const nlohmann::ordered_json object = {{"seed", report.seed},
                                           {"right", right},
                                           {"failure", report.failure},
                                           {"hash", fmt::format("{:016x}", report.hash)},
                                           {"virtual_ns", report.virtual_time.count()},
                                           {"counters", to_json(report.counters)}};
    std::fputs((object.dump(2) + "\n").c_str(), stdout);
  } else {
    fmt::print("seed {}: {}, trace {:016x}, {} operations, {} packets, {:.3f} ms\n", report.seed,
               right ? "right" : "FAILED: " + report.failure, report.hash,
               report.counters.operations, report.counters.packets,
               std::chrono::duration<double, std::milli>(report.virtual_time).count());
  }
  std::fflush(stdout);
  // A failed run leaves fibres that stand in the middle of something.
  if (!right) ::_exit(1);
  return 0;
}

int run_many(const Options& options, std::uint64_t first, std::uint64_t last) {
  CampaignOptions campaign{.first = first,
                           .last = last,
                           .jobs = options.jobs,
                           .same_host = options.same_host,
                           .most_failures = options.most_failures};
  const bool shows = !options.quiet && !options.json && ::isatty(STDERR_FILENO) != 0;
  if (shows) {
    campaign.progress = [total = last - first + 1](std::uint64_t runs) {
      fmt::print(stderr, "\r{} of {} seeds", runs, total);
    };
  }
  const CampaignReport report = run_campaign(campaign);
  if (shows) fmt::print(stderr, "\r{:30}\r", "");
  if (options.json) {
    nlohmann::ordered_json failed = nlohmann::ordered_json::array();
    for (const FailedSeed& seed : report.failed) {
      failed.push_back({{"seed", seed.seed}, {"failure", seed.failure}});
    }
    const nlohmann::ordered_json object = {{"first", first},
                                           {"last", last},
                                           {"runs", report.runs},
                                           {"failed", failed},
                                           {"virtual_ns", report.virtual_time.count()},
                                           {"real_ns", report.real_time.count()},
                                           {"counters", to_json(report.counters)}};
    std::fputs((object.dump(2) + "\n").c_str(), stdout);
  } else {
    for (const FailedSeed& seed : report.failed) {
      fmt::print("seed {} FAILED: {}\n  again: verbena sim{} --seed {}\n", seed.seed, seed.failure,
                 options.same_host ? " --same-host" : "", seed.seed);
    }
    fmt::print("{}\n", summary(report));
  }
  return report.failed.empty() ? 0 : 1;
}

int run(const Options& options) {
  if (options.seed.has_value() == !options.seeds.empty()) {
    std::fputs("verbena: sim takes either --seed or --seeds\n", stderr);
    return 2;
  }
  if (options.seed) return run_one(*options.seed, options);
  const auto range = parse_range(options.seeds);
  if (!range) {
    std::fputs("verbena: --seeds takes a range like 1..1000\n", stderr);
    return 2;
  }
  return run_many(options, range->first, range->second);
}

}  // namespace

void add_sim_command(CLI::App& app, int& status) {
  auto* command = app.add_subcommand(
      "sim", "Run the whole NIC in a deterministic simulation with faults, and check it");
  command->footer(kFooter);
  auto options = std::make_shared<Options>();
  command->add_option("--seed", options->seed, "Replay one run, with a trace");
  command->add_option("--seeds", options->seeds, "Run many: A..B");
  command->add_option("--jobs", options->jobs, "Processes that run seeds")
      ->check(CLI::Range(1U, 64U));
  command->add_option("--failures", options->most_failures, "Stop after so many failed seeds (10)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--same-host", options->same_host,
                    "Connected queue pairs use memory that their processes share");
  command->add_flag("--quiet", options->quiet, "No trace, no progress");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace verbena::sim
