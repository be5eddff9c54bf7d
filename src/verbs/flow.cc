// SPDX-License-Identifier: Apache-2.0
#include "verbena/flow.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

namespace verbena::verbs {
namespace {

constexpr std::uint16_t kVlanBits = 0xFFF;

/// An ibv_flow_attr and what follows it, one behind the other as the C call wants it.
class Rule {
 public:
  Rule(const flow_options& options, ibv_flow_attr_type kind) {
    attributes().type = kind;
    attributes().port = options.of.value();
    attributes().priority = options.priority;
    attributes().flags = options.takes ? 0 : IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
    attributes().size = sizeof(ibv_flow_attr);
  }
  template <typename Spec>
  void add(ibv_flow_spec_type type, Spec spec) {
    spec.type = type;
    spec.size = sizeof spec;
    std::memcpy(bytes_.data() + attributes().size, &spec, sizeof spec);
    attributes().size = static_cast<std::uint16_t>(attributes().size + sizeof spec);
    ++attributes().num_of_specs;
  }
  [[nodiscard]] ibv_flow_attr& attributes() {
    return *reinterpret_cast<ibv_flow_attr*>(bytes_.data());
  }

 private:
  static constexpr std::size_t kMost = sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_eth) +
                                       sizeof(ibv_flow_spec_ipv6) + sizeof(ibv_flow_spec_tcp_udp) +
                                       sizeof(ibv_flow_spec_action_tag);
  alignas(ibv_flow_attr) std::array<std::byte, kMost> bytes_{};
};

void set_mac(const std::optional<mac_address>& from, std::uint8_t* value, std::uint8_t* mask) {
  if (!from) return;
  std::ranges::copy(*from, value);
  std::fill_n(mask, from->size(), std::uint8_t{0xFF});
}

void set_word(const std::optional<std::uint16_t>& from, std::uint16_t& value, std::uint16_t& mask,
              std::uint16_t bits = 0xFFFF) {
  if (!from) return;
  value = htobe16(*from);
  mask = htobe16(bits);
}

void add_ethernet(Rule& rule, const flow_match& match) {
  if (!match.to_mac && !match.from_mac && !match.ether_type && !match.vlan) return;
  ibv_flow_spec_eth spec{};
  set_mac(match.to_mac, std::begin(spec.val.dst_mac), std::begin(spec.mask.dst_mac));
  set_mac(match.from_mac, std::begin(spec.val.src_mac), std::begin(spec.mask.src_mac));
  set_word(match.ether_type, spec.val.ether_type, spec.mask.ether_type);
  set_word(match.vlan, spec.val.vlan_tag, spec.mask.vlan_tag, kVlanBits);
  rule.add(IBV_FLOW_SPEC_ETH, spec);
}

/// The last four bytes of a mapped address.
void set_ipv4(const std::optional<gid>& from, std::uint32_t& value, std::uint32_t& mask) {
  if (!from) return;
  std::memcpy(&value, from->raw().data() + 12, sizeof value);
  mask = UINT32_MAX;
}

void set_ipv6(const std::optional<gid>& from, std::uint8_t* value, std::uint8_t* mask) {
  if (!from) return;
  std::ranges::copy(from->raw(), value);
  std::fill_n(mask, from->raw().size(), std::uint8_t{0xFF});
}

void add_addresses(Rule& rule, const flow_match& match) {
  if (!match.to_address && !match.from_address) return;
  if (match.to_address.value_or(match.from_address.value_or(gid())).is_ipv4()) {
    ibv_flow_spec_ipv4 spec{};
    set_ipv4(match.to_address, spec.val.dst_ip, spec.mask.dst_ip);
    set_ipv4(match.from_address, spec.val.src_ip, spec.mask.src_ip);
    rule.add(IBV_FLOW_SPEC_IPV4, spec);
    return;
  }
  ibv_flow_spec_ipv6 spec{};
  set_ipv6(match.to_address, std::begin(spec.val.dst_ip), std::begin(spec.mask.dst_ip));
  set_ipv6(match.from_address, std::begin(spec.val.src_ip), std::begin(spec.mask.src_ip));
  rule.add(IBV_FLOW_SPEC_IPV6, spec);
}

void add_ports(Rule& rule, const flow_match& match) {
  if (!match.protocol) return;
  ibv_flow_spec_tcp_udp spec{};
  set_word(match.to_port, spec.val.dst_port, spec.mask.dst_port);
  set_word(match.from_port, spec.val.src_port, spec.mask.src_port);
  rule.add(*match.protocol == ip_protocol::tcp ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP, spec);
}

Result<> check_match(const flow_match& match) {
  constexpr const char* kOperation = "flow_rule::matching";
  if ((match.to_port || match.from_port) && !match.protocol)
    return fail(std::errc::invalid_argument, kOperation, "ports need a protocol: TCP or UDP");
  if (match.to_address && match.from_address &&
      match.to_address->is_ipv4() != match.from_address->is_ipv4())
    return fail(std::errc::invalid_argument, kOperation,
                "one address is of IPv4, the other of IPv6");
  if (match.vlan && *match.vlan > kVlanBits)
    return fail(std::errc::invalid_argument, kOperation, "a VLAN's number has 12 bits");
  return {};
}

}  // namespace

flow_rule::flow_rule(ibv_flow* raw, detail::keep parent)
    : handle(raw, &ibv_destroy_flow, "ibv_destroy_flow", {std::move(parent)}) {}

Result<flow_rule> flow_rule::create(const queue_pair<raw_packet>& to, ibv_flow_attr& attributes) {
  VERBENA_TRY(detail::access_to::check(to, "flow_rule"));
  return flow_rule(VERBENA_TRY(detail::from_pointer(ibv_create_flow(to.native(), &attributes),
                                                    "ibv_create_flow")),
                   detail::access_to::keep_of(to));
}

Result<flow_rule> flow_rule::matching(const queue_pair<raw_packet>& to, const flow_match& match,
                                      const flow_options& options) {
  VERBENA_TRY(check_match(match));
  Rule rule(options, IBV_FLOW_ATTR_NORMAL);
  add_ethernet(rule, match);
  add_addresses(rule, match);
  add_ports(rule, match);
  if (rule.attributes().num_of_specs == 0)
    return fail(std::errc::invalid_argument, "flow_rule::matching",
                "nothing is set; all_else() and sniffer() are for everything");
  if (options.tag)
    rule.add(IBV_FLOW_SPEC_ACTION_TAG,
             ibv_flow_spec_action_tag{.type = {}, .size = 0, .tag_id = *options.tag});
  return create(to, rule.attributes());
}

Result<flow_rule> flow_rule::of_kind(const queue_pair<raw_packet>& to, port of,
                                     ibv_flow_attr_type kind) {
  Rule rule({.of = of}, kind);
  return create(to, rule.attributes());
}

Result<flow_rule> flow_rule::all_else(const queue_pair<raw_packet>& to, port of) {
  return of_kind(to, of, IBV_FLOW_ATTR_ALL_DEFAULT);
}
Result<flow_rule> flow_rule::multicast_else(const queue_pair<raw_packet>& to, port of) {
  return of_kind(to, of, IBV_FLOW_ATTR_MC_DEFAULT);
}
Result<flow_rule> flow_rule::sniffer(const queue_pair<raw_packet>& to, port of) {
  return of_kind(to, of, IBV_FLOW_ATTR_SNIFFER);
}

}  // namespace verbena::verbs
