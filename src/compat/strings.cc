// SPDX-License-Identifier: Apache-2.0
// Names and rates: ibv_wc_status_str(3), ibv_node_type_str(3), ibv_port_state_str(3),
// ibv_event_type_str(3), ibv_rate_to_mult(3), ibv_rate_to_mbps(3). They need no device, so they
// serve real ones as well.
#include <algorithm>
#include <array>
#include <utility>

#include "compat/abi.h"

namespace verbena::compat {
namespace {

template <std::size_t kSize>
const char* name_in(const std::array<const char*, kSize>& names, int value) {
  const auto place = static_cast<std::size_t>(value);  // a negative value is far outside
  return place < kSize && names[place] != nullptr ? names[place] : "unknown";
}

constexpr std::array kStatusNames{
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};
static_assert(kStatusNames.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);

constexpr std::array kNodeTypes{static_cast<const char*>(nullptr),
                                "InfiniBand channel adapter",
                                "InfiniBand switch",
                                "InfiniBand router",
                                "iWARP NIC",
                                "usNIC",
                                "usNIC UDP",
                                "unspecified"};

constexpr std::array kPortStates{"no state change (NOP)", "down", "init", "armed", "active",
                                 "active defer"};

constexpr std::array kEventTypes{"CQ error",
                                 "local work queue catastrophic error",
                                 "invalid request local work queue error",
                                 "local access violation work queue error",
                                 "communication established",
                                 "send queue drained",
                                 "path migrated",
                                 "path migration request error",
                                 "local catastrophic error",
                                 "port active",
                                 "port error",
                                 "LID change",
                                 "P_Key change",
                                 "SM change",
                                 "SRQ catastrophic error",
                                 "SRQ limit reached",
                                 "last WQE reached",
                                 "client reregistration",
                                 "GID table change",
                                 "WQ fatal"};
static_assert(kEventTypes.size() == IBV_EVENT_WQ_FATAL + 1);

constexpr int kNoMultiple = -1;

struct Rate {
  ibv_rate rate;
  int multiple;  ///< of 2.5 Gbit/s, for those rates that libibverbs 1.14 counts so
  int mbps;
};

constexpr std::array kRates{
    Rate{IBV_RATE_2_5_GBPS, 1, 2500},
    Rate{IBV_RATE_5_GBPS, 2, 5000},
    Rate{IBV_RATE_10_GBPS, 4, 10000},
    Rate{IBV_RATE_20_GBPS, 8, 20000},
    Rate{IBV_RATE_30_GBPS, 12, 30000},
    Rate{IBV_RATE_40_GBPS, 16, 40000},
    Rate{IBV_RATE_60_GBPS, 24, 60000},
    Rate{IBV_RATE_80_GBPS, 32, 80000},
    Rate{IBV_RATE_120_GBPS, 48, 120000},
    Rate{IBV_RATE_14_GBPS, kNoMultiple, 14062},
    Rate{IBV_RATE_56_GBPS, kNoMultiple, 56250},
    Rate{IBV_RATE_112_GBPS, kNoMultiple, 112500},
    Rate{IBV_RATE_168_GBPS, kNoMultiple, 168750},
    Rate{IBV_RATE_25_GBPS, kNoMultiple, 25781},
    Rate{IBV_RATE_100_GBPS, kNoMultiple, 103125},
    Rate{IBV_RATE_200_GBPS, kNoMultiple, 206250},
    Rate{IBV_RATE_300_GBPS, kNoMultiple, 309375},
    Rate{IBV_RATE_28_GBPS, 11, 28125},
    Rate{IBV_RATE_50_GBPS, 20, 53125},
    Rate{IBV_RATE_400_GBPS, 160, 425000},
    Rate{IBV_RATE_600_GBPS, 240, 637500},
    Rate{IBV_RATE_800_GBPS, 320, 850000},
    Rate{IBV_RATE_1200_GBPS, 480, 1275000},
};

template <typename Value>
int read_rate(ibv_rate rate, Value value) {
  const auto found = std::ranges::find(kRates, rate, &Rate::rate);
  return found != kRates.end() ? (*found).*value : kNoMultiple;
}

template <typename Value>
ibv_rate find_rate(int wanted, Value value) {
  const auto found = std::ranges::find(kRates, wanted, value);
  return wanted > 0 && found != kRates.end() ? found->rate : IBV_RATE_MAX;
}

}  // namespace

VERBENA_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) {
  return name_in(kStatusNames, status);
}
VERBENA_EXPORT const char* ibv_node_type_str(ibv_node_type type) {
  return name_in(kNodeTypes, type);
}
VERBENA_EXPORT const char* ibv_port_state_str(ibv_port_state state) {
  return name_in(kPortStates, state);
}
VERBENA_EXPORT const char* ibv_event_type_str(ibv_event_type event) {
  return name_in(kEventTypes, event);
}

VERBENA_EXPORT int ibv_rate_to_mult(ibv_rate rate) { return read_rate(rate, &Rate::multiple); }
VERBENA_EXPORT ibv_rate mult_to_ibv_rate(int mult) { return find_rate(mult, &Rate::multiple); }
VERBENA_EXPORT int ibv_rate_to_mbps(ibv_rate rate) { return read_rate(rate, &Rate::mbps); }
VERBENA_EXPORT ibv_rate mbps_to_ibv_rate(int mbps) { return find_rate(mbps, &Rate::mbps); }

}  // namespace verbena::compat
