// SPDX-License-Identifier: Apache-2.0
#include "nic/flow_table.h"

#include <algorithm>
#include <utility>

namespace verbena::nic {
namespace {

using wire::FrameLayer;

[[nodiscard]] bool matches(const FlowMatch& match, const wire::FrameHeaders& headers) {
  const ConstBytes fields = headers.fields(match.layer);
  if (fields.empty()) return false;
  for (std::size_t at = 0; at < fields.size(); ++at) {
    if (((fields[at] ^ match.value[at]) & match.mask[at]) != std::byte{0}) return false;
  }
  if (match.layer != FrameLayer::kEthernet || headers.tagged()) return true;
  // No tag is not the tag zero.
  const auto vlan_mask = std::span(match.mask).subspan(wire::EthernetField::kVlanTag, 2);
  return std::ranges::all_of(vlan_mask, [](std::byte byte) { return byte == std::byte{0}; });
}

[[nodiscard]] Result<void> check(const FlowRule& rule) {
  const auto count = [&](FrameLayer layer) {
    return std::ranges::count(rule.matches, layer, &FlowMatch::layer);
  };
  if (rule.kind != FlowKind::kNormal && (!rule.matches.empty() || !rule.takes))
    return fail(std::errc::invalid_argument, "only a normal rule has conditions or lets frames on");
  if (count(FrameLayer::kEthernet) > 1 || count(FrameLayer::kIpv4) + count(FrameLayer::kIpv6) > 1 ||
      count(FrameLayer::kTcp) + count(FrameLayer::kUdp) > 1)
    return fail(std::errc::invalid_argument, "a rule has one condition for each layer of a frame");
  return {};
}

}  // namespace

bool matches(const FlowRule& rule, const wire::FrameHeaders& headers) {
  if (rule.kind == FlowKind::kMulticastDefault) return headers.multicast();
  return std::ranges::all_of(rule.matches,
                             [&](const FlowMatch& match) { return matches(match, headers); });
}

std::uint32_t FlowTable::rank_of(const FlowRule& rule) {
  return rule.kind == FlowKind::kNormal ? rule.priority : kDefaultRank;
}

Result<Flow*> FlowTable::insert(FlowRule rule, FrameReceiver& receiver, QueuePair* qp) {
  VERBENA_TRY(check(rule));
  if (flows_.size() >= kMaxFlows)
    return fail(std::errc::not_enough_memory, "the port has as many steering rules as it can");
  auto flow = std::make_unique<Flow>(std::move(rule), &receiver, qp);
  Flow* const made = flow.get();
  const auto behind = std::ranges::upper_bound(
      flows_, rank_of(made->rule), {},
      [](const std::unique_ptr<Flow>& other) { return rank_of(other->rule); });
  flows_.insert(behind, std::move(flow));
  return made;
}

void FlowTable::erase(Flow* flow) {
  std::erase_if(flows_, [flow](const std::unique_ptr<Flow>& other) { return other.get() == flow; });
}

void FlowTable::steer(const HeardFrame& frame) {
  ++frames_;
  bool taken = false;
  std::uint32_t last_rank = kDefaultRank;  // of the last rule that took it
  for (const auto& flow : flows_) {
    const FlowRule& rule = flow->rule;
    const bool sniffs = rule.kind == FlowKind::kSniffer;
    const std::uint32_t rank = rank_of(rule);
    if (taken && rank != last_rank && !sniffs) continue;
    if (!matches(rule, frame.headers)) continue;
    give(frame, *flow);
    if (sniffs || !rule.takes) continue;
    taken = true;
    last_rank = rank;
  }
}

void FlowTable::give(const HeardFrame& frame, const Flow& flow) {
  if (std::exchange(flow.receiver->last_frame, frames_) == frames_) return;
  flow.receiver->receive(frame, flow.rule.tag);
}

}  // namespace verbena::nic
