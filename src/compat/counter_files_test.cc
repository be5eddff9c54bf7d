// SPDX-License-Identifier: Apache-2.0
#include "compat/counter_files.h"

#include <gtest/gtest.h>

#include <map>

namespace verbena::compat {
namespace {

std::map<std::string, std::uint64_t> files_of(const nic::PortReport& port) {
  const auto list = counter_files(port);
  std::map<std::string, std::uint64_t> files(list.begin(), list.end());
  EXPECT_EQ(files.size(), list.size()) << "a name stands twice";
  return files;
}

TEST(CounterFiles, InfiniBandAndSoftRoceNames) {
  nic::PortReport port;
  port.state.downs = 3;
  port.counters.bytes_sent.add(4000);
  port.counters.packets_received.add(7);
  port.counters.multicasts_received.add(3);
  port.counters.multicasts_sent.add(2);  // of a packet that is not counted as sent yet
  port.counters.sequence_naks_received.add(2);
  port.counters.rnr_retry_exceeded.add(1);
  port.counters.bad_icrc.add(5);
  port.counters.wrong_pkey.add(6);
  port.counters.marked.add(8);
  port.counters.cnps_sent.add(9);
  port.counters.cnps_handled.add(10);
  auto files = files_of(port);
  EXPECT_EQ(files["counters/port_xmit_data"], 1000U);
  EXPECT_EQ(files["counters/port_rcv_packets"], 7U);
  EXPECT_EQ(files["counters/unicast_rcv_packets"], 4U);
  EXPECT_EQ(files["counters/multicast_rcv_packets"], 3U);
  EXPECT_EQ(files["counters/unicast_xmit_packets"], 0U);
  EXPECT_EQ(files["counters/multicast_xmit_packets"], 2U);
  EXPECT_EQ(files["counters/port_rcv_errors"], 11U);
  EXPECT_EQ(files["counters/link_downed"], 3U);
  EXPECT_EQ(files["hw_counters/rcvd_pkts"], 7U);
  EXPECT_EQ(files["hw_counters/rcvd_seq_err"], 2U);
  EXPECT_EQ(files["hw_counters/retry_rnr_exceeded_err"], 1U);
  EXPECT_EQ(files["hw_counters/bad_icrc"], 5U);
  EXPECT_EQ(files["hw_counters/np_ecn_marked_roce_packets"], 8U);
  EXPECT_EQ(files["hw_counters/np_cnp_sent"], 9U);
  EXPECT_EQ(files["hw_counters/rp_cnp_handled"], 10U);
}

TEST(CounterFiles, AllOfOursAreThere) {
  const auto files = files_of({});
  for (const engine::CounterEntry& entry : engine::kCounterTable)
    EXPECT_TRUE(files.contains("hw_counters/" + std::string(entry.name))) << entry.name;
}

}  // namespace
}  // namespace verbena::compat
