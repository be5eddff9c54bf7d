// SPDX-License-Identifier: Apache-2.0
#include "compat/counter_files.h"

#include <fmt/format.h>

#include <algorithm>

namespace verbena::compat {

using engine::Counters;

namespace {

/// PortCounters' data are in words of four bytes (IBA vol. 1, 16.1.3.5). Headers and ICRC are not
/// counted, only payload.
constexpr std::uint64_t kWord = 4;

/// What is left without a part that may have grown since the whole was read.
std::uint64_t without(std::uint64_t whole, std::uint64_t part) {
  return whole - std::min(whole, part);
}

std::uint64_t received_and_dropped(const Counters& counters) {
  return counters.bad_icrc + counters.malformed + counters.unknown_qp + counters.wrong_transport +
         counters.wrong_state + counters.wrong_pkey + counters.wrong_qkey + counters.wrong_source +
         counters.no_receive + counters.oversized_datagrams;
}

}  // namespace

std::vector<std::pair<std::string, std::uint64_t>> counter_files(const nic::PortReport& port) {
  const Counters& counters = port.counters;
  std::vector<std::pair<std::string, std::uint64_t>> files{
      {"counters/port_xmit_data", counters.bytes_sent / kWord},
      {"counters/port_rcv_data", counters.bytes_received / kWord},
      {"counters/port_xmit_packets", counters.packets_sent},
      {"counters/port_rcv_packets", counters.packets_received},
      {"counters/unicast_xmit_packets", without(counters.packets_sent, counters.multicasts_sent)},
      {"counters/unicast_rcv_packets",
       without(counters.packets_received, counters.multicasts_received)},
      {"counters/multicast_xmit_packets", counters.multicasts_sent},
      {"counters/multicast_rcv_packets", counters.multicasts_received},
      {"counters/port_rcv_errors", received_and_dropped(counters)},
      {"counters/port_xmit_discards", counters.send_drops},
      {"counters/port_rcv_constraint_errors", counters.wrong_pkey},
      {"counters/port_xmit_constraint_errors", 0},
      {"counters/port_rcv_remote_physical_errors", 0},
      {"counters/port_rcv_switch_relay_errors", 0},
      {"counters/port_xmit_wait", 0},
      {"counters/symbol_error", 0},
      {"counters/link_downed", port.state.downs},
      {"counters/link_error_recovery", 0},
      {"counters/local_link_integrity_errors", 0},
      {"counters/excessive_buffer_overrun_errors", 0},
      {"counters/VL15_dropped", 0},

      {"hw_counters/sent_pkts", counters.packets_sent},
      {"hw_counters/rcvd_pkts", counters.packets_received},
      {"hw_counters/duplicate_request", counters.duplicates},
      {"hw_counters/out_of_seq_request", counters.out_of_sequence},
      {"hw_counters/rcvd_rnr_err", counters.rnr_naks_received},
      {"hw_counters/send_rnr_err", counters.rnr_naks_sent},
      {"hw_counters/rcvd_seq_err", counters.sequence_naks_received},
      {"hw_counters/retry_exceeded_err", counters.retry_exceeded},
      {"hw_counters/retry_rnr_exceeded_err", counters.rnr_retry_exceeded},
      {"hw_counters/send_err", counters.send_drops},
      {"hw_counters/link_downed", port.state.downs},
      {"hw_counters/np_ecn_marked_roce_packets", counters.marked},
      {"hw_counters/np_cnp_sent", counters.cnps_sent},
      {"hw_counters/rp_cnp_handled", counters.cnps_handled},
      {"hw_counters/rdma_sends", counters.sends_completed},
      {"hw_counters/rdma_recvs", counters.receives_completed},
      // How many milliseconds old the numbers may be: they are read anew each time.
      {"hw_counters/lifespan", 0},
  };
  // And all of ours by their own names.
  for (const engine::CounterEntry& entry : engine::kCounterTable)
    files.emplace_back(fmt::format("hw_counters/{}", entry.name), counters.*entry.counter);
  return files;
}

}  // namespace verbena::compat
