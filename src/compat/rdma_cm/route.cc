// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/route.h"

#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>

#include "compat/query.h"

namespace verbena::compat::rdma_cm {
namespace {

constexpr std::uint8_t kExactly = 2;  // of a selector
constexpr std::uint8_t kLongestTimeout = 31;

// Where fields of a path record stand (IBA vol. 1, 15.2.5.16), in bytes.
constexpr std::size_t kDestinationOffset = 8;
constexpr std::size_t kSourceOffset = 24;
constexpr std::size_t kFlowHopOffset = 44;
constexpr std::size_t kTrafficClassOffset = 48;
constexpr std::size_t kReversibleOffset = 49;
constexpr std::size_t kPkeyOffset = 50;
constexpr std::size_t kServiceLevelOffset = 52;
constexpr std::size_t kMtuOffset = 54;
constexpr std::size_t kRateOffset = 55;
constexpr std::size_t kLifetimeOffset = 56;
constexpr std::uint8_t kSelected = 0x3F;
constexpr std::uint8_t kReversible = 0x80 | 1;  // and one path

constexpr std::uint8_t exactly(std::uint8_t value) {
  return static_cast<std::uint8_t>(kExactly << 6 | value);
}

std::uint8_t largest_mtu(const Id& id) {
  return static_cast<std::uint8_t>(to_mtu(id.port->device->config.max_mtu));
}

}  // namespace

std::uint8_t ack_timeout(std::uint8_t ack_delay, std::uint8_t packet_lifetime) {
  // Both are powers of two, and of their sum only the larger counts, or one more.
  int timeout = packet_lifetime + 1;
  if (timeout >= ack_delay) {
    timeout += ack_delay >= timeout - 1 ? 1 : 0;
  } else {
    timeout = ack_delay + (timeout >= ack_delay - 1 ? 1 : 0);
  }
  return static_cast<std::uint8_t>(std::min<int>(timeout, kLongestTimeout));
}

Route make_route(const Id& id) {
  const std::uint8_t timeout = id.ack_timeout.value_or(0);
  return {
      .source = id.source.address,
      .destination = id.destination.address,
      .traffic_class = id.type_of_service.value_or(0),
      .mtu = largest_mtu(id),
      .rate = IBV_RATE_40_GBPS,
      .packet_lifetime = timeout != 0 ? static_cast<std::uint8_t>(timeout - 1) : kPacketLifetime};
}

Route route_of(const wire::CmReq& request, const wire::Path& path) {
  const std::uint8_t timeout = request.primary.local_ack_timeout;
  return {.source = path.source,
          .destination = path.destination,
          .flow_label = path.flow_label,
          .traffic_class = path.traffic_class,
          .hop_limit = path.hop_limit,
          .service_level = request.primary.service_level,
          .mtu = request.path_mtu,
          .rate = request.primary.packet_rate,
          .packet_lifetime = static_cast<std::uint8_t>(timeout - (timeout > 0 ? 1 : 0))};
}

wire::Path to_path(const Route& route) {
  return {.source = route.source,
          .destination = route.destination,
          .traffic_class = route.traffic_class,
          .hop_limit = route.hop_limit,
          .flow_label = route.flow_label};
}

ib_user_path_rec to_record(const Route& route) {
  ib_user_path_rec record{};
  std::memcpy(record.dgid, route.destination.gid.data(), sizeof record.dgid);
  std::memcpy(record.sgid, route.source.gid.data(), sizeof record.sgid);
  record.flow_label = htobe32(route.flow_label);
  record.reversible = 1;
  record.mtu = route.mtu;
  record.pkey = htobe16(kDefaultPkey);
  record.hop_limit = route.hop_limit;
  record.traffic_class = route.traffic_class;
  record.numb_path = 1;
  record.sl = route.service_level;
  record.mtu_selector = kExactly;
  record.rate_selector = kExactly;
  record.rate = route.rate;
  record.packet_life_time_selector = kExactly;
  record.packet_life_time = route.packet_lifetime;
  return record;
}

ib_uverbs_ah_attr to_address_vector(const Id& id, const Route& route) {
  ib_uverbs_ah_attr to{};
  std::memcpy(to.grh.dgid, route.destination.gid.data(), sizeof to.grh.dgid);
  to.grh.flow_label = route.flow_label;
  const auto index = nic::index_of(id.port->services->port().gids, route.source);
  to.grh.sgid_index = static_cast<__u8>(index.value_or(0));
  to.grh.hop_limit = route.hop_limit;
  to.grh.traffic_class = route.traffic_class;
  to.sl = route.service_level;
  to.is_global = 1;
  to.port_num = kPort;
  return to;
}

PackedRecord pack(const Route& route) {
  PackedRecord record{};
  std::ranges::copy(route.destination.gid, record.begin() + kDestinationOffset);
  std::ranges::copy(route.source.gid, record.begin() + kSourceOffset);
  store_be<std::uint32_t>(record.data() + kFlowHopOffset, route.flow_label << 8 | route.hop_limit);
  record[kTrafficClassOffset] = std::byte{route.traffic_class};
  record[kReversibleOffset] = std::byte{kReversible};
  store_be<std::uint16_t>(record.data() + kPkeyOffset, kDefaultPkey);
  store_be<std::uint16_t>(record.data() + kServiceLevelOffset, route.service_level);
  record[kMtuOffset] = std::byte{exactly(route.mtu)};
  record[kRateOffset] = std::byte{exactly(route.rate)};
  record[kLifetimeOffset] = std::byte{exactly(route.packet_lifetime)};
  return record;
}

Result<Route> unpack(const Id& id, const PackedRecord& record) {
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint8_t>(record[at]); };
  const auto flow_hop = load_be<std::uint32_t>(record.data() + kFlowHopOffset);
  Route route = make_route(id);
  route.flow_label = flow_hop >> 8 & IB_GRH_FLOWLABEL_MASK;
  if ((flow_hop & 0xFF) > 1) route.hop_limit = static_cast<std::uint8_t>(flow_hop);
  route.traffic_class = byte(kTrafficClassOffset);
  route.service_level = byte(kServiceLevelOffset + 1) & 0xF;
  route.mtu = byte(kMtuOffset) & kSelected;
  route.rate = byte(kRateOffset) & kSelected;
  route.packet_lifetime =
      std::min<std::uint8_t>(byte(kLifetimeOffset) & kSelected, kLongestTimeout - 1);
  if (route.mtu < IBV_MTU_256 || route.mtu > largest_mtu(id))
    return fail(std::errc::invalid_argument, "the path's MTU is not one of the device's");
  return route;
}

}  // namespace verbena::compat::rdma_cm
