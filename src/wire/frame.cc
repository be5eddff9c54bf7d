// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.h"

#include <algorithm>
#include <cstring>

#include "wire/ip_udp.h"

namespace verbena::wire {
namespace {

constexpr std::size_t kEthernetSize = 14;
constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
constexpr std::uint16_t kEtherTypeIpv6 = 0x86DD;
constexpr std::byte kUdpProtocol{17};
constexpr std::byte kIbaTransport{0x1B};  // behind a GRH: a BTH
static_assert(kMaxFrameHeaderSize == kEthernetSize + kMaxNetworkHeaderSize);

std::unexpected<Error> bad(const char* what) { return fail(std::errc::bad_message, what); }

/// Reads the IP header into `frame` and returns what the header says is its payload.
Result<ConstBytes> parse_ipv4(ConstBytes ip, Frame& frame) {
  if (ip.size() < kIpv4Size) return bad("the IPv4 header is truncated");
  if (ip[0] != std::byte{0x45}) return bad("no IPv4 header without options");
  if (ipv4_checksum(ip.data()) != 0) return bad("the IPv4 header checksum is wrong");
  const std::size_t total = load_be<std::uint16_t>(ip.data() + 2);
  if (total < kIpv4Size || total > ip.size())
    return bad("the IPv4 total length is not that of the frame");
  // The ICRC covers the flags, and every sender of RoCEv2 sets DF (Annex A17).
  if (load_be<std::uint16_t>(ip.data() + 6) != 0x4000)
    return bad("an IPv4 fragment, or DF is not set");
  if (ip[9] != kUdpProtocol) return bad("not UDP");
  frame.path.traffic_class = std::to_integer<std::uint8_t>(ip[1]);
  frame.identification = load_be<std::uint16_t>(ip.data() + 4);
  frame.path.hop_limit = std::to_integer<std::uint8_t>(ip[8]);
  frame.path.source = Address::from_ipv4(load_be<std::uint32_t>(ip.data() + 12));
  frame.path.destination = Address::from_ipv4(load_be<std::uint32_t>(ip.data() + 16));
  return ip.subspan(kIpv4Size, total - kIpv4Size);
}

/// An IPv6 header, or a GRH, which is laid out alike, with that next header.
Result<ConstBytes> parse_like_ipv6(ConstBytes ip, std::byte next_header, Frame& frame) {
  if (ip.size() < kIpv6Size) return bad("the IPv6 header or GRH is truncated");
  const std::uint32_t first = load_be<std::uint32_t>(ip.data());
  if ((first >> 28) != 6) return bad("no IPv6 header or GRH");
  const std::size_t size = load_be<std::uint16_t>(ip.data() + 4);
  if (size > ip.size() - kIpv6Size) return bad("the payload length is not that of the frame");
  if (ip[6] != next_header) return bad("not UDP, IPv6 extension headers, or no BTH behind the GRH");
  frame.path.traffic_class = static_cast<std::uint8_t>(first >> 20);
  frame.path.flow_label = first & 0xFFFFF;
  frame.path.hop_limit = std::to_integer<std::uint8_t>(ip[7]);
  std::memcpy(frame.path.source.gid.data(), ip.data() + 8, 16);
  std::memcpy(frame.path.destination.gid.data(), ip.data() + 24, 16);
  return ip.subspan(kIpv6Size, size);
}

Result<ConstBytes> parse_ipv6(ConstBytes ip, Frame& frame) {
  const ConstBytes payload = VERBENA_TRY(parse_like_ipv6(ip, kUdpProtocol, frame));
  // In GID form these would read as an IPv4 packet.
  if (frame.path.source.is_ipv4() || frame.path.destination.is_ipv4())
    return bad("IPv4-mapped address in an IPv6 header");
  return payload;
}

}  // namespace

Result<Frame> parse_frame(ConstBytes bytes) {
  if (bytes.size() < kEthernetSize) return bad("the Ethernet header is truncated");
  Frame frame;
  std::memcpy(frame.destination_mac.data(), bytes.data(), 6);
  std::memcpy(frame.source_mac.data(), bytes.data() + 6, 6);
  const ConstBytes ip = bytes.subspan(kEthernetSize);
  ConstBytes udp;
  switch (load_be<std::uint16_t>(bytes.data() + 12)) {
    case kEtherTypeIpv4: udp = VERBENA_TRY(parse_ipv4(ip, frame)); break;
    case kEtherTypeIpv6: udp = VERBENA_TRY(parse_ipv6(ip, frame)); break;
    case kEtherTypeRoce:
      frame.path.roce_v1 = true;
      frame.udp_payload = VERBENA_TRY(parse_like_ipv6(ip, kIbaTransport, frame));
      return frame;
    default: return bad("neither IPv4 nor IPv6 nor RoCEv1");
  }
  if (udp.size() < kUdpSize) return bad("the UDP header is truncated");
  if (load_be<std::uint16_t>(udp.data() + 2) != kRoceUdpPort)
    return bad("not to the port of RoCEv2");
  // The ICRC takes both lengths from one number.
  if (load_be<std::uint16_t>(udp.data() + 4) != udp.size())
    return bad("the UDP length is not that of the IP header");
  frame.path.source_port = load_be<std::uint16_t>(udp.data());
  frame.udp_checksum = load_be<std::uint16_t>(udp.data() + 6);
  frame.udp_payload = udp.subspan(kUdpSize);
  return frame;
}

std::size_t encode_frame_headers(const Frame& frame, std::byte* to) {
  std::ranges::copy(frame.destination_mac, to);
  std::ranges::copy(frame.source_mac, to + 6);
  const std::uint16_t ip = is_ipv4(frame.path) ? kEtherTypeIpv4 : kEtherTypeIpv6;
  store_be(to + 12, frame.path.roce_v1 ? kEtherTypeRoce : ip);
  return kEthernetSize + encode_network_headers(frame.path, frame.identification,
                                                frame.udp_checksum, frame.udp_payload.size(),
                                                to + kEthernetSize);
}

}  // namespace verbena::wire
