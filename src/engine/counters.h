// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/counter.h"
#include "engine/types.h"
#include "wire/headers.h"

namespace verbena::engine {

/// What was sent and received, and what was dropped, repeated, refused or failed, and why. A shard
/// counts into one of these and each of its queue pairs into another; those of packets that belong
/// to no queue pair stay zero there.
struct Counters {
  // Traffic. Payload bytes; of what was received, those of packets that were accepted.
  Counter packets_sent;
  Counter packets_received;
  Counter bytes_sent;
  Counter bytes_received;
  Counter sends_completed;      ///< SENDs of all kinds, with success
  Counter receives_completed;   ///< with success
  Counter multicasts_sent;      ///< among packets_sent
  Counter multicasts_received;  ///< among packets_received: once, however many took it
  Counter payloads_fetched;  ///< of packets_received, whose payload stayed with its sender at first
  Counter direct_requests;   ///< WRITEs and READs that were a copy within the machine, no packets

  // What repeats and refuses, on both sides.
  Counter retransmitted;  ///< packets
  Counter timeouts;
  Counter acks_sent;
  Counter sequence_naks_sent;
  Counter request_naks_sent;  ///< invalid request
  Counter access_naks_sent;
  Counter operation_naks_sent;
  Counter rnr_naks_sent;
  Counter sequence_naks_received;
  Counter request_naks_received;
  Counter access_naks_received;
  Counter operation_naks_received;
  Counter rnr_naks_received;
  Counter duplicates;       ///< requests
  Counter out_of_sequence;  ///< requests
  Counter ghost_responses;  ///< nobody waits for them

  // Congestion control.
  Counter marked;  ///< packets that came with the congestion mark
  Counter cnps_sent;
  Counter cnps_handled;

  // Work requests that failed, by the status of their completion.
  Counter flushed;
  Counter retry_exceeded;
  Counter rnr_retry_exceeded;
  Counter remote_access_errors;
  Counter remote_invalid_requests;
  Counter remote_operation_errors;
  Counter local_protection_errors;
  Counter local_length_errors;
  Counter bad_responses;
  Counter other_failures;

  // Packets that came and were dropped.
  Counter bad_icrc;
  Counter malformed;
  Counter unknown_qp;
  Counter wrong_transport;  ///< the opcode does not fit the queue pair's type
  Counter wrong_state;
  Counter wrong_pkey;
  Counter wrong_qkey;
  Counter wrong_source;  ///< connected: from or to another address; UD: to a group, by number
  Counter no_receive;    ///< UD or UC without a receive
  Counter oversized_datagrams;
  Counter fault_plan_drops;
  Counter port_down_drops;  ///< both ways

  // Packets that could not leave.
  Counter send_drops;
};

struct CounterEntry {
  std::string_view name;
  Counter Counters::* counter;
};

inline constexpr std::size_t kCounters = sizeof(Counters) / sizeof(Counter);

/// All counters with their names, in the order of the struct.
inline constexpr std::array<CounterEntry, kCounters> kCounterTable = {{
    {"packets_sent", &Counters::packets_sent},
    {"packets_received", &Counters::packets_received},
    {"bytes_sent", &Counters::bytes_sent},
    {"bytes_received", &Counters::bytes_received},
    {"sends_completed", &Counters::sends_completed},
    {"receives_completed", &Counters::receives_completed},
    {"multicasts_sent", &Counters::multicasts_sent},
    {"multicasts_received", &Counters::multicasts_received},
    {"payloads_fetched", &Counters::payloads_fetched},
    {"direct_requests", &Counters::direct_requests},
    {"retransmitted", &Counters::retransmitted},
    {"timeouts", &Counters::timeouts},
    {"acks_sent", &Counters::acks_sent},
    {"sequence_naks_sent", &Counters::sequence_naks_sent},
    {"request_naks_sent", &Counters::request_naks_sent},
    {"access_naks_sent", &Counters::access_naks_sent},
    {"operation_naks_sent", &Counters::operation_naks_sent},
    {"rnr_naks_sent", &Counters::rnr_naks_sent},
    {"sequence_naks_received", &Counters::sequence_naks_received},
    {"request_naks_received", &Counters::request_naks_received},
    {"access_naks_received", &Counters::access_naks_received},
    {"operation_naks_received", &Counters::operation_naks_received},
    {"rnr_naks_received", &Counters::rnr_naks_received},
    {"duplicates", &Counters::duplicates},
    {"out_of_sequence", &Counters::out_of_sequence},
    {"ghost_responses", &Counters::ghost_responses},
    {"marked", &Counters::marked},
    {"cnps_sent", &Counters::cnps_sent},
    {"cnps_handled", &Counters::cnps_handled},
    {"flushed", &Counters::flushed},
    {"retry_exceeded", &Counters::retry_exceeded},
    {"rnr_retry_exceeded", &Counters::rnr_retry_exceeded},
    {"remote_access_errors", &Counters::remote_access_errors},
    {"remote_invalid_requests", &Counters::remote_invalid_requests},
    {"remote_operation_errors", &Counters::remote_operation_errors},
    {"local_protection_errors", &Counters::local_protection_errors},
    {"local_length_errors", &Counters::local_length_errors},
    {"bad_responses", &Counters::bad_responses},
    {"other_failures", &Counters::other_failures},
    {"bad_icrc", &Counters::bad_icrc},
    {"malformed", &Counters::malformed},
    {"unknown_qp", &Counters::unknown_qp},
    {"wrong_transport", &Counters::wrong_transport},
    {"wrong_state", &Counters::wrong_state},
    {"wrong_pkey", &Counters::wrong_pkey},
    {"wrong_qkey", &Counters::wrong_qkey},
    {"wrong_source", &Counters::wrong_source},
    {"no_receive", &Counters::no_receive},
    {"oversized_datagrams", &Counters::oversized_datagrams},
    {"fault_plan_drops", &Counters::fault_plan_drops},
    {"port_down_drops", &Counters::port_down_drops},
    {"send_drops", &Counters::send_drops},
}};

/// The counters as plain numbers, in the order of the table.
using CounterValues = std::array<std::uint64_t, kCounters>;
[[nodiscard]] CounterValues values_of(const Counters& counters);
/// Adds every counter of `more` to `sum`, which nobody else counts into.
void add(Counters& sum, const Counters& more);
/// What was counted since `before`. Counters that another process scribbled over may have shrunk:
/// those count as zero.
[[nodiscard]] Counters since(const Counters& before, const Counters& now);

/// NAKs of all kinds but RNR.
[[nodiscard]] std::uint64_t naks_sent(const Counters& counters);
[[nodiscard]] std::uint64_t naks_received(const Counters& counters);
/// Where a NAK is counted.
[[nodiscard]] Counter Counters::* sent_nak_counter(wire::NakCode code);
[[nodiscard]] Counter Counters::* received_nak_counter(wire::NakCode code);
/// Where a completion that is no success is counted.
[[nodiscard]] Counter Counters::* failure_counter(Status status);

}  // namespace verbena::engine
