// SPDX-License-Identifier: Apache-2.0
#include "compat/path.h"

#include <cstring>

#include "compat/query.h"

namespace verbena::compat {
namespace {

constexpr std::uint32_t kFlowLabelMask = IB_GRH_FLOWLABEL_MASK;
constexpr std::uint8_t kDefaultHopLimit = 64;  // a packet with none would not leave the host

/// A flow label of 20 bits from two 24-bit numbers: the same for every packet of a queue pair
/// (A17.3.2.1), and different for most others.
std::uint32_t flow_label_of(std::uint32_t local_qp, std::uint32_t remote_qp) {
  std::uint64_t mixed =
      (std::uint64_t{local_qp} << 24 | remote_qp) * 0x9E3779B97F4A7C15ULL;  // 2^64 / golden ratio
  mixed ^= mixed >> 29;
  return static_cast<std::uint32_t>(mixed >> 20) & kFlowLabelMask;
}

}  // namespace

Result<wire::Path> to_path(const nic::Nic& nic, const ibv_ah_attr& attr, std::uint32_t local_qp,
                           std::uint32_t remote_qp) {
  if (attr.is_global == 0)
    return fail(std::errc::invalid_argument, "RoCE needs a GRH: is_global is 0");
  if (attr.port_num != kPort)
    return fail(std::errc::invalid_argument, "the device has port 1 only");
  const nic::GidTable gids = nic.port().gids;
  if (attr.grh.sgid_index >= gids.size() || gids[attr.grh.sgid_index].is_zero()) {
    return fail(std::errc::invalid_argument, "no such source GID in the table");
  }
  wire::Path path;
  path.source = gids[attr.grh.sgid_index];
  std::memcpy(path.destination.gid.data(), attr.grh.dgid.raw, sizeof attr.grh.dgid.raw);
  if (path.destination.is_zero())
    return fail(std::errc::invalid_argument, "the destination GID is zero");
  if (path.destination.is_ipv4() != path.source.is_ipv4()) {
    return fail(std::errc::invalid_argument, "one of the two GIDs is IPv4, the other is IPv6");
  }
  path.traffic_class = attr.grh.traffic_class;
  path.hop_limit = attr.grh.hop_limit != 0 ? attr.grh.hop_limit : kDefaultHopLimit;
  path.flow_label = attr.grh.flow_label & kFlowLabelMask;
  const std::uint32_t label =
      path.flow_label != 0 ? path.flow_label : flow_label_of(local_qp, remote_qp);
  path.source_port = ibv_flow_label_to_udp_sport(label);
  return path;
}

ibv_ah_attr from_path(const nic::Nic& nic, const wire::Path& path) {
  ibv_ah_attr attr{};
  if (path.destination.is_zero()) return attr;  // none was set
  const auto source = nic::index_of(nic.port().gids, path.source);
  attr.grh.sgid_index = static_cast<std::uint8_t>(source.value_or(0));
  std::memcpy(attr.grh.dgid.raw, path.destination.gid.data(), sizeof attr.grh.dgid.raw);
  attr.grh.flow_label = path.flow_label;
  attr.grh.hop_limit = path.hop_limit;
  attr.grh.traffic_class = path.traffic_class;
  attr.is_global = 1;
  attr.port_num = kPort;
  return attr;
}

}  // namespace verbena::compat
