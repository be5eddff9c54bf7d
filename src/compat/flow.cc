// SPDX-License-Identifier: Apache-2.0
// Steering rules: ibv_create_flow(3).
#include <cstddef>
#include <cstring>
#include <utility>

#include "compat/errno.h"
#include "compat/objects.h"
#include "compat/query.h"
#include "nic/flow_table.h"

namespace verbena::compat {
namespace {

using wire::FrameLayer;

static_assert(static_cast<int>(nic::FlowKind::kNormal) == IBV_FLOW_ATTR_NORMAL);
static_assert(static_cast<int>(nic::FlowKind::kAllDefault) == IBV_FLOW_ATTR_ALL_DEFAULT);
static_assert(static_cast<int>(nic::FlowKind::kMulticastDefault) == IBV_FLOW_ATTR_MC_DEFAULT);
static_assert(static_cast<int>(nic::FlowKind::kSniffer) == IBV_FLOW_ATTR_SNIFFER);

// A layer's fields are laid out as the filters are, so that one is copied from the other.
static_assert(sizeof(ibv_flow_eth_filter) == wire::EthernetField::kSize);
static_assert(offsetof(ibv_flow_eth_filter, src_mac) == wire::EthernetField::kSource);
static_assert(offsetof(ibv_flow_eth_filter, ether_type) == wire::EthernetField::kEtherType);
static_assert(offsetof(ibv_flow_eth_filter, vlan_tag) == wire::EthernetField::kVlanTag);
static_assert(offsetof(ibv_flow_ipv4_filter, dst_ip) == wire::Ipv4Field::kDestination);
static_assert(sizeof(ibv_flow_ipv4_ext_filter) == wire::Ipv4Field::kSize);
static_assert(offsetof(ibv_flow_ipv4_ext_filter, proto) == wire::Ipv4Field::kProtocol);
static_assert(offsetof(ibv_flow_ipv4_ext_filter, tos) == wire::Ipv4Field::kTypeOfService);
static_assert(offsetof(ibv_flow_ipv4_ext_filter, ttl) == wire::Ipv4Field::kTimeToLive);
static_assert(offsetof(ibv_flow_ipv4_ext_filter, flags) == wire::Ipv4Field::kFlags);
static_assert(offsetof(ibv_flow_ipv6_filter, dst_ip) == wire::Ipv6Field::kDestination);
static_assert(offsetof(ibv_flow_ipv6_filter, flow_label) == wire::Ipv6Field::kFlowLabel);
static_assert(offsetof(ibv_flow_ipv6_filter, next_hdr) == wire::Ipv6Field::kNextHeader);
static_assert(offsetof(ibv_flow_ipv6_filter, traffic_class) == wire::Ipv6Field::kTrafficClass);
static_assert(offsetof(ibv_flow_ipv6_filter, hop_limit) == wire::Ipv6Field::kHopLimit);
static_assert(sizeof(ibv_flow_tcp_udp_filter) == wire::PortField::kSize);
static_assert(offsetof(ibv_flow_tcp_udp_filter, src_port) == wire::PortField::kSource);

/// What every specification and action begins with.
struct SpecHeader {
  std::uint32_t type = 0;
  std::uint16_t size = 0;
};

SpecHeader header_at(const std::byte* spec) {
  SpecHeader header;
  std::memcpy(&header.type, spec, sizeof header.type);
  std::memcpy(&header.size, spec + sizeof header.type, sizeof header.size);
  return header;
}

template <typename Spec>
Result<nic::FlowMatch> to_match(FrameLayer layer, const std::byte* at, std::size_t size) {
  if (size != sizeof(Spec))
    return fail(std::errc::invalid_argument, "a specification is not as long as its type");
  Spec spec;
  std::memcpy(&spec, at, sizeof spec);
  nic::FlowMatch match{.layer = layer};
  const std::size_t fields = std::min(sizeof spec.val, wire::size_of(layer));
  std::memcpy(match.value.data(), &spec.val, fields);
  std::memcpy(match.mask.data(), &spec.mask, fields);
  return match;
}

Result<nic::FlowMatch> to_match(const SpecHeader& header, const std::byte* at) {
  switch (header.type) {
    case IBV_FLOW_SPEC_ETH:
      return to_match<ibv_flow_spec_eth>(FrameLayer::kEthernet, at, header.size);
    case IBV_FLOW_SPEC_IPV4:
      return to_match<ibv_flow_spec_ipv4>(FrameLayer::kIpv4, at, header.size);
    case IBV_FLOW_SPEC_IPV4_EXT:
      return to_match<ibv_flow_spec_ipv4_ext>(FrameLayer::kIpv4, at, header.size);
    case IBV_FLOW_SPEC_IPV6:
      return to_match<ibv_flow_spec_ipv6>(FrameLayer::kIpv6, at, header.size);
    case IBV_FLOW_SPEC_TCP:
      return to_match<ibv_flow_spec_tcp_udp>(FrameLayer::kTcp, at, header.size);
    case IBV_FLOW_SPEC_UDP:
      return to_match<ibv_flow_spec_tcp_udp>(FrameLayer::kUdp, at, header.size);
    default:
      return fail(std::errc::operation_not_supported,
                  "rules look at Ethernet, IPv4, IPv6, TCP and UDP; they steer and tag");
  }
}

Result<std::uint32_t> to_tag(const SpecHeader& header, const std::byte* at) {
  ibv_flow_spec_action_tag action;
  if (header.size != sizeof action)
    return fail(std::errc::invalid_argument, "an action is not as long as its type");
  std::memcpy(&action, at, sizeof action);
  return action.tag_id;
}

Result<nic::FlowRule> to_rule(const ibv_flow_attr& attr) {
  const std::uint32_t kind = number_of(attr.type);
  if (attr.comp_mask != 0 || (attr.flags & IBV_FLOW_ATTR_FLAGS_EGRESS) != 0)
    return fail(std::errc::operation_not_supported,
                "unknown comp_mask, or a rule for what is sent");
  if (kind > IBV_FLOW_ATTR_SNIFFER || attr.port != kPort ||
      (attr.flags & ~std::uint32_t{IBV_FLOW_ATTR_FLAGS_DONT_TRAP}) != 0)
    return fail(std::errc::invalid_argument, "no such type of rule, port or flag");
  nic::FlowRule rule{.kind = static_cast<nic::FlowKind>(kind),
                     .priority = attr.priority,
                     .takes = (attr.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP) == 0};
  const auto* at = reinterpret_cast<const std::byte*>(&attr + 1);
  bool tagged = false;
  for (unsigned i = 0; i < attr.num_of_specs; ++i) {
    const SpecHeader header = header_at(at);
    if (header.type != IBV_FLOW_SPEC_ACTION_TAG) {
      rule.matches.push_back(VERBENA_TRY(to_match(header, at)));
    } else if (std::exchange(tagged, true)) {
      return fail(std::errc::invalid_argument, "a rule has one tag");
    } else {
      rule.tag = VERBENA_TRY(to_tag(header, at));
    }
    at += header.size;
  }
  return rule;
}

Result<ibv_flow*> make_flow(Qp& qp, const ibv_flow_attr& attr) {
  Context& ours = *VERBENA_TRY(alive(qp.qp_base.context));
  if (qp.qp_base.qp_type != IBV_QPT_RAW_PACKET && qp.qp_base.qp_type != IBV_QPT_UD)
    return fail(std::errc::invalid_argument, "rules are for raw packet and UD queue pairs");
  const nic::FlowRule rule = VERBENA_TRY(to_rule(attr));
  auto flow = std::make_unique<Flow>();
  flow->flow = VERBENA_TRY(ours.nic->create_flow(qp.pair, rule));
  flow->context = qp.qp_base.context;
  enter(ours, &Context::flows, *flow);
  return flow.release();
}

}  // namespace

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) noexcept {
  return pointer_of("ibv_create_flow", [&] { return make_flow(Qp::of(qp), *attr); });
}

int destroy_flow(ibv_flow* c_flow) noexcept {
  return status_of("ibv_destroy_flow", [&]() -> Result<void> {
    Flow& flow = Flow::of(c_flow);
    Context& ours = *VERBENA_TRY(alive(flow.context));
    ours.nic->destroy_flow(flow.flow);
    leave(ours, &Context::flows, flow);
    delete &flow;
    return {};
  });
}

}  // namespace verbena::compat
