// SPDX-License-Identifier: Apache-2.0
// Address handles: ibv_create_ah(3), ibv_init_ah_from_wc and ibv_create_ah_from_wc of the same
// page.
#include <endian.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "compat/errno.h"
#include "compat/path.h"
#include "compat/query.h"
#include "compat/rdma_cm/device_file.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

/// Without a GRH an address is a LID, which RoCE does not have. Only rsockets for datagrams are let
/// through, who send themselves some by the LID of their own port, 0.
ibv_ah_attr with_grh(const nic::Nic& nic, const ibv_ah_attr& attr) {
  if (attr.is_global != 0 || attr.dlid != 0 || !has_datagram_ids()) return attr;
  ibv_ah_attr global = attr;
  global.is_global = 1;
  global.grh = {};
  global.grh.hop_limit = wire::Path{}.hop_limit;
  std::memcpy(global.grh.dgid.raw, nic.config().address.gid.data(), sizeof global.grh.dgid.raw);
  return global;
}

Result<ibv_ah*> create_ah(ibv_pd* pd, const ibv_ah_attr& attr) {
  Context& ours = *VERBENA_TRY(alive(pd->context));
  nic::ProtectionDomain* const domain = VERBENA_TRY(domain_of(pd));
  auto ah = std::make_unique<Ah>();
  const wire::Path path = VERBENA_TRY(to_path(*ours.nic, with_grh(*ours.nic, attr), 0, 0));
  ah->address = VERBENA_TRY(ours.nic->create_ah(domain, path));
  ah->context = pd->context;
  ah->pd = pd;
  enter(ours, &Context::ahs, *ah);
  return ah.release();
}

Result<void> destroy_ah(Ah& ah) {
  Context& ours = *VERBENA_TRY(alive(ah.context));
  VERBENA_TRY(ours.nic->destroy_ah(ah.address));
  leave(ours, &Context::ahs, ah);
  delete &ah;
  return {};
}

/// Who sent a datagram and to whom, from the 40 bytes before it: an IPv6 header, or 20 undefined
/// bytes and an IPv4 header (A17.4.5.2).
struct DatagramHeader {
  wire::Address source{};
  wire::Address destination{};
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint32_t flow_label = 0;
};

DatagramHeader parse_ipv4(const std::byte* header) {
  DatagramHeader parsed;
  parsed.traffic_class = std::to_integer<std::uint8_t>(header[1]);
  parsed.hop_limit = std::to_integer<std::uint8_t>(header[8]);
  parsed.source = wire::Address::from_ipv4(load_be<std::uint32_t>(header + 12));
  parsed.destination = wire::Address::from_ipv4(load_be<std::uint32_t>(header + 16));
  return parsed;
}

DatagramHeader parse_ipv6(const std::byte* header) {
  const auto first_word = load_be<std::uint32_t>(header);
  DatagramHeader parsed;
  parsed.traffic_class = static_cast<std::uint8_t>(first_word >> 20);
  parsed.flow_label = first_word & IB_GRH_FLOWLABEL_MASK;
  parsed.hop_limit = std::to_integer<std::uint8_t>(header[7]);
  std::memcpy(parsed.source.gid.data(), header + 8, 16);
  std::memcpy(parsed.destination.gid.data(), header + 24, 16);
  return parsed;
}

/// Where answers to a datagram leave from: the GID that it came to; for one that came to a
/// multicast group the first GID of its IP version.
std::optional<std::size_t> answering_gid(const nic::GidTable& gids, const wire::Address& came_to) {
  if (!came_to.is_multicast()) return nic::index_of(gids, came_to);
  const auto fits = [&](const wire::Address& gid) {
    return !gid.is_zero() && gid.is_ipv4() == came_to.is_ipv4();
  };
  const auto found = std::ranges::find_if(gids, fits);
  if (found == gids.end()) return std::nullopt;
  return static_cast<std::size_t>(found - gids.begin());
}

constexpr std::uint8_t kPacketTypeIpv4 = 0xA;  // wc.sl of a UD receive (engine.md, "On the wire")

Result<void> init_ah(ibv_context* context, std::uint8_t port_num, const ibv_wc& wc,
                     const ibv_grh* grh, ibv_ah_attr& attr) {
  Context& ours = *VERBENA_TRY(alive(context));
  if (port_num != kPort) return fail(std::errc::invalid_argument, "the device has port 1 only");
  if ((wc.wc_flags & IBV_WC_GRH) == 0 || grh == nullptr) {
    return fail(std::errc::invalid_argument, "the completion has no GRH to answer to");
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(grh);
  // A GRH is laid out as an IPv6 header is.
  const DatagramHeader header =
      wc.sl == kPacketTypeIpv4 ? parse_ipv4(bytes + 20) : parse_ipv6(bytes);
  const auto own = answering_gid(ours.nic->port().gids, header.destination);
  if (!own) return fail(std::errc::invalid_argument, "the datagram went to no GID of this port");
  attr = {};
  std::memcpy(attr.grh.dgid.raw, header.source.gid.data(), sizeof attr.grh.dgid.raw);
  attr.grh.sgid_index = static_cast<std::uint8_t>(*own);
  attr.grh.flow_label = header.flow_label;
  attr.grh.hop_limit = 0xFF;
  attr.grh.traffic_class = header.traffic_class;
  attr.is_global = 1;
  attr.port_num = port_num;
  return {};
}

}  // namespace

VERBENA_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (!is_ours(pd->context)) return real::call<"ibv_create_ah">(&ibv_create_ah, pd, attr);
  return pointer_of("ibv_create_ah", [&] { return create_ah(pd, *attr); });
}

VERBENA_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc,
                                       ibv_grh* grh, ibv_ah_attr* attr) {
  if (!is_ours(context)) {
    return real::call<"ibv_init_ah_from_wc">(&ibv_init_ah_from_wc, context, port_num, wc, grh,
                                             attr);
  }
  return minus_one_of("ibv_init_ah_from_wc",
                      [&] { return init_ah(context, port_num, *wc, grh, *attr); });
}

VERBENA_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh,
                                             uint8_t port_num) {
  if (!is_ours(pd->context)) {
    return real::call<"ibv_create_ah_from_wc">(&ibv_create_ah_from_wc, pd, wc, grh, port_num);
  }
  return pointer_of("ibv_create_ah_from_wc", [&]() -> Result<ibv_ah*> {
    ibv_ah_attr attr{};
    VERBENA_TRY(init_ah(pd->context, port_num, *wc, grh, attr));
    return create_ah(pd, attr);
  });
}

VERBENA_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  if (!is_ours(ah->context)) return real::call<"ibv_destroy_ah">(&ibv_destroy_ah, ah);
  return status_of("ibv_destroy_ah", [&] { return destroy_ah(Ah::of(ah)); });
}

// Only queue pairs that build Ethernet headers themselves need a hardware address, and we have none
// of those.
VERBENA_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr,
                                               uint8_t mac[ETHERNET_LL_SIZE], uint16_t* vlan) {
  if (!is_ours(context)) {
    return real::call<"ibv_resolve_eth_l2_from_gid">(&ibv_resolve_eth_l2_from_gid, context, attr,
                                                     mac, vlan);
  }
  errno = EOPNOTSUPP;
  return -1;
}

}  // namespace verbena::compat
