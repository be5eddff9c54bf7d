// SPDX-License-Identifier: Apache-2.0
#include "wire/frame_headers.h"

#include <algorithm>

namespace verbena::wire {
namespace {

constexpr std::size_t kMacSize = 6;
constexpr std::size_t kTagSize = 4;
constexpr int kMaxTags = 2;
constexpr std::uint16_t kTagged = 0x8100;         // IEEE 802.1Q
constexpr std::uint16_t kServiceTagged = 0x88A8;  // IEEE 802.1ad
constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
constexpr std::uint16_t kEtherTypeIpv6 = 0x86DD;

constexpr std::size_t kIpv4HeaderSize = 20;
constexpr std::size_t kIpv6HeaderSize = 40;
constexpr std::size_t kTcpHeaderSize = 20;
constexpr std::size_t kUdpHeaderSize = 8;
constexpr std::uint8_t kProtocolTcp = 6;
constexpr std::uint8_t kProtocolUdp = 17;

// As Linux numbers them in rules (ib_ipv4_flags), which is not as the header has them.
constexpr std::byte kDontFragment{2};
constexpr std::byte kMoreFragments{4};

void copy(std::byte* to, ConstBytes from, std::size_t offset, std::size_t size) {
  std::ranges::copy(from.subspan(offset, size), to);
}

}  // namespace

std::optional<FrameHeaders> FrameHeaders::parse(ConstBytes frame) {
  if (frame.size() < kMinFrameSize) return std::nullopt;
  FrameHeaders headers;
  headers.read_ethernet(frame);
  return headers;
}

ConstBytes FrameHeaders::fields(FrameLayer layer) const {
  if (!has(layer)) return {};
  return std::span(fields_[static_cast<std::size_t>(layer)]).first(size_of(layer));
}

std::byte* FrameHeaders::add(FrameLayer layer) {
  present_ |= bit(layer);
  return fields_[static_cast<std::size_t>(layer)].data();
}

void FrameHeaders::read_ethernet(ConstBytes frame) {
  std::byte* const to = add(FrameLayer::kEthernet);
  copy(to, frame, 0, 2 * kMacSize);
  ConstBytes rest = frame.subspan(2 * kMacSize);
  auto type = load_be<std::uint16_t>(rest.data());
  for (int tags = 0; tags < kMaxTags && (type == kTagged || type == kServiceTagged); ++tags) {
    if (rest.size() < kTagSize + sizeof type) break;
    if (!tagged_) copy(to + EthernetField::kVlanTag, rest, sizeof type, sizeof(std::uint16_t));
    tagged_ = true;
    rest = rest.subspan(kTagSize);
    type = load_be<std::uint16_t>(rest.data());
  }
  store_be(to + EthernetField::kEtherType, type);
  const ConstBytes packet = rest.subspan(sizeof type);
  if (type == kEtherTypeIpv4) read_ipv4(packet);
  if (type == kEtherTypeIpv6) read_ipv6(packet);
}

void FrameHeaders::read_ipv4(ConstBytes packet) {
  if (packet.size() < kIpv4HeaderSize) return;
  const auto version_and_length = std::to_integer<std::uint8_t>(packet[0]);
  const std::size_t header_size = std::size_t{version_and_length & 0xFU} * 4;
  if (version_and_length >> 4 != 4 || header_size < kIpv4HeaderSize || header_size > packet.size())
    return;
  std::byte* const to = add(FrameLayer::kIpv4);
  copy(to + Ipv4Field::kSource, packet, 12, 8);
  to[Ipv4Field::kProtocol] = packet[9];
  to[Ipv4Field::kTypeOfService] = packet[1];
  to[Ipv4Field::kTimeToLive] = packet[8];
  const auto fragment = load_be<std::uint16_t>(packet.data() + 6);
  if ((fragment & 0x4000) != 0) to[Ipv4Field::kFlags] |= kDontFragment;
  if ((fragment & 0x2000) != 0) to[Ipv4Field::kFlags] |= kMoreFragments;
  if ((fragment & 0x1FFF) != 0) return;
  read_ports(std::to_integer<std::uint8_t>(packet[9]), packet.subspan(header_size));
}

void FrameHeaders::read_ipv6(ConstBytes packet) {
  if (packet.size() < kIpv6HeaderSize) return;
  const auto first = load_be<std::uint32_t>(packet.data());
  if (first >> 28 != 6) return;
  std::byte* const to = add(FrameLayer::kIpv6);
  copy(to + Ipv6Field::kSource, packet, 8, 32);
  store_be(to + Ipv6Field::kFlowLabel, first & 0xFFFFFU);
  to[Ipv6Field::kNextHeader] = packet[6];
  to[Ipv6Field::kTrafficClass] = static_cast<std::byte>(first >> 20);
  to[Ipv6Field::kHopLimit] = packet[7];
  read_ports(std::to_integer<std::uint8_t>(packet[6]), packet.subspan(kIpv6HeaderSize));
}

void FrameHeaders::read_ports(std::uint8_t protocol, ConstBytes payload) {
  const bool tcp = protocol == kProtocolTcp && payload.size() >= kTcpHeaderSize;
  const bool udp = protocol == kProtocolUdp && payload.size() >= kUdpHeaderSize;
  if (!tcp && !udp) return;
  std::byte* const to = add(tcp ? FrameLayer::kTcp : FrameLayer::kUdp);
  copy(to + PortField::kSource, payload, 0, sizeof(std::uint16_t));
  copy(to + PortField::kDestination, payload, 2, sizeof(std::uint16_t));
}

}  // namespace verbena::wire
