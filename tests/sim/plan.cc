// SPDX-License-Identifier: Apache-2.0
#include "sim/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/random.h"

namespace verbena::sim {
namespace {

enum Disturbance : std::uint32_t {
  kDrop,
  kDuplicate,
  kReorder,
  kDelay,
  kCorrupt,
  kPause,
  kRestart,
  kForge,
  kSilence,
  kDisturbances,
};

/// At least three kinds, as a set of bits.
std::uint32_t choose_disturbances(Random& random) {
  std::array<std::uint32_t, kDisturbances> kinds{};
  for (std::uint32_t i = 0; i < kDisturbances; ++i) kinds[i] = i;
  for (std::uint32_t i = kDisturbances - 1; i > 0; --i) {
    std::swap(kinds[i], kinds[random.below(i + 1)]);
  }
  const std::uint64_t count = random.between(3, kDisturbances);
  std::uint32_t chosen = 0;
  for (std::uint32_t i = 0; i < count; ++i) chosen |= 1U << kinds[i];
  return chosen;
}

void plan_disturbances(Plan& plan, Random& random) {
  const std::uint32_t chosen = choose_disturbances(random);
  const auto has = [&](Disturbance kind) { return (chosen >> kind & 1) != 0; };
  plan.gentle = random.below(4) != 0;
  const std::uint64_t most_lost = plan.gentle ? 10'000 : 60'000;
  const auto rate = [&](Disturbance kind, std::uint64_t most) {
    return has(kind) ? static_cast<std::uint32_t>(random.between(most / 10, most)) : 0;
  };
  plan.disturbance.drop_ppm = rate(kDrop, most_lost);
  plan.disturbance.corrupt_ppm = rate(kCorrupt, most_lost / 2);
  plan.disturbance.duplicate_ppm = rate(kDuplicate, 30'000);
  plan.disturbance.reorder_ppm = rate(kReorder, 20'000);
  plan.disturbance.delay_ppm = rate(kDelay, 20'000);
  plan.disturbance.longest_delay = Duration(static_cast<Duration::rep>(
      random.between(10'000, static_cast<std::uint64_t>(plan.min_ack_timeout.count()) / 4)));
  if (has(kPause)) plan.pauses = static_cast<std::uint32_t>(random.between(2, 6));
  if (has(kRestart)) plan.restarts = 1;
  if (has(kForge)) plan.forgeries = static_cast<std::uint32_t>(random.between(10, 40));
  if (has(kSilence)) plan.silences = 1;
}

void plan_connections(Plan& plan, Random& random) {
  if (plan.processes == 3) {
    plan.connections = {{0, 1}, {1, 2}, {2, 0}};
  } else {
    plan.connections.assign(random.between(1, 3), {0, 1});
  }
  if (random.below(8) == 0) plan.connections.push_back({0, 0});
  plan.datagram_pairs = static_cast<std::uint32_t>(random.below(3));
}

}  // namespace

link::FaultPlan fault_plan(const DisturbancePlan& plan, std::uint64_t seed) {
  link::FaultPlan made;
  made.seed = seed;
  const auto add = [&](link::Fault fault, std::uint32_t rate) {
    if (rate != 0) made.rules.push_back({.fault = fault, .rate_ppm = rate});
  };
  add(link::Fault::kDrop, plan.drop_ppm);
  add(link::Fault::kDuplicate, plan.duplicate_ppm);
  add(link::Fault::kReorder, plan.reorder_ppm);
  add(link::Fault::kDelay, plan.delay_ppm);
  add(link::Fault::kCorrupt, plan.corrupt_ppm);
  made.delay_min = Duration(1'000);
  made.delay_max = plan.longest_delay;
  return made;
}

Plan make_plan(std::uint64_t seed) {
  Random random(seed);
  Plan plan;
  plan.seed = seed;
  plan.processes = random.below(10) < 7 ? 2 : 3;
  plan.ipv6 = random.below(5) == 0;
  plan.port_mtu = random.below(4) == 0 ? 1024 : 4096;
  plan.network.latency = Duration(static_cast<Duration::rep>(random.between(500, 30'000)));
  plan.network.jitter = Duration(static_cast<Duration::rep>(random.below(5'000)));
  plan.network.refuse_ppm = random.below(3) == 0 ? 20'000 : 0;
  plan.nap = Duration(static_cast<Duration::rep>(random.below(30'000)));
  constexpr std::array kTimeouts = {1'000'000, 4'000'000, 20'000'000};
  plan.min_ack_timeout = Duration(kTimeouts[random.below(kTimeouts.size())]);
  constexpr std::array kWindows = {32 << 10, 1 << 20, 256 << 10, 256 << 10};
  plan.window_max = static_cast<std::uint32_t>(kWindows[random.below(kWindows.size())]);
  plan.operations = static_cast<std::uint32_t>(random.between(520, 800));
  plan_disturbances(plan, random);
  plan_connections(plan, random);
  plan.shared_queues = static_cast<std::uint32_t>(random.below(3));
  plan.windows = random.below(2) == 0;
  plan.unreliable_pairs = static_cast<std::uint32_t>(random.below(3));
  if (random.below(2) == 0) plan.numbered_queues = static_cast<std::uint32_t>(random.between(1, 3));
  if (plan.datagram_pairs != 0) plan.groups = static_cast<std::uint32_t>(random.below(3));
  constexpr std::array kChannelMtus = {256U, 1024U, 4096U, 32768U};
  plan.channel_mtu = kChannelMtus[random.below(kChannelMtus.size())];
  plan.share_memory = random.below(2) == 0;
  plan.lends = random.below(2) == 0;
  plan.network.segments = random.below(2) == 0;
  return plan;
}

std::string to_string(const Plan& plan) {
  return fmt::format(
      "seed {}: {} processes, {} connections, {} UC, {} UD in {} groups, {} SRQ and {} XRC SRQ "
      "each, {}{}, {} "
      "operations; "
      "drop {} "
      "duplicate {} "
      "reorder {} delay {} corrupt {} ppm, {} pauses, {} restarts, {} forgeries, {} silences",
      plan.seed, plan.processes, plan.connections.size(), plan.unreliable_pairs,
      plan.datagram_pairs, plan.groups, plan.shared_queues, plan.numbered_queues,
      plan.windows ? "windows, " : "", plan.ipv6 ? "IPv6" : "IPv4", plan.operations,
      plan.disturbance.drop_ppm, plan.disturbance.duplicate_ppm, plan.disturbance.reorder_ppm,
      plan.disturbance.delay_ppm, plan.disturbance.corrupt_ppm, plan.pauses, plan.restarts,
      plan.forgeries, plan.silences);
}

}  // namespace verbena::sim
