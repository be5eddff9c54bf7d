// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "link/fault_plan.h"
#include "sim/network.h"

namespace verbena::sim {

/// What may go wrong on the way, in parts of a million datagrams; see `link/fault.h`.
struct DisturbancePlan {
  std::uint32_t drop_ppm = 0;
  std::uint32_t duplicate_ppm = 0;
  std::uint32_t reorder_ppm = 0;
  std::uint32_t delay_ppm = 0;
  std::uint32_t corrupt_ppm = 0;
  Duration longest_delay{100'000};
};
/// The same, for a link.
[[nodiscard]] link::FaultPlan fault_plan(const DisturbancePlan& plan, std::uint64_t seed);

/// Two processes (or one with itself) and the ends of their connection.
struct ConnectionPlan {
  std::size_t left = 0;
  std::size_t right = 0;
};

/// Everything about a run that is decided before it begins, from the seed alone.
struct Plan {
  std::uint64_t seed = 0;
  std::size_t processes = 2;
  bool ipv6 = false;
  bool same_host = false;             ///< connected queue pairs use memory that the processes share
  std::uint32_t channel_mtu = 32768;  ///< payload of their packets
  bool share_memory = false;          ///< and peers' memory, where they may, with `same_host`
  bool lends = false;                 ///< what is in the middle of messages, and READ, is fetched
  std::uint32_t port_mtu = 4096;
  NetworkPlan network{};
  Duration nap{10'000};
  Duration min_ack_timeout{4'000'000};
  std::uint32_t window_max = 256 << 10;
  DisturbancePlan disturbance{};
  std::uint32_t pauses = 0;
  Duration longest_pause{};  ///< 0: half as long again as the shortest ACK time-out
  bool patient = false;      ///< EngineConfig::patient
  std::uint32_t restarts = 0;
  std::uint32_t forgeries = 0;
  std::uint32_t silences = 0;  ///< cut paths that end connections
  /// Little is lost: a request whose retries are exhausted without a reason is a bug.
  bool gentle = true;
  std::uint32_t operations = 600;  ///< that are posted before the run winds up
  std::vector<ConnectionPlan> connections{};
  std::uint32_t datagram_pairs = 0;    ///< UD queue pairs in each process
  std::uint32_t groups = 0;            ///< multicast groups that they are in now and then
  std::uint32_t shared_queues = 0;     ///< shared receive queues in each process
  std::uint32_t numbered_queues = 0;   ///< XRC receive queues in each process
  std::uint32_t unreliable_pairs = 0;  ///< UC connections
  bool windows = false;                ///< memory windows over what peers reach
  std::uint32_t misdeed_ppm = 4'000;   ///< of operations, those that are wrong on purpose

  /// Payload of a packet between connected queue pairs that agreed on a path MTU.
  [[nodiscard]] std::uint32_t mtu(std::uint32_t path_mtu) const {
    return same_host ? channel_mtu : path_mtu;
  }
  [[nodiscard]] bool loses() const {
    return disturbance.drop_ppm != 0 || disturbance.corrupt_ppm != 0 || pauses != 0 ||
           silences != 0 || restarts != 0;
  }
};

[[nodiscard]] Plan make_plan(std::uint64_t seed);
/// One line for the trace.
[[nodiscard]] std::string to_string(const Plan& plan);

}  // namespace verbena::sim
