// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/address.h"
#include "wire/headers.h"

/// The IP and UDP headers that stand before a RoCEv2 packet, for all who need them as bytes:
/// frames, the ICRC and the header that a UD receiver sees.
namespace verbena::wire {

inline constexpr std::size_t kIpv4Size = 20;
inline constexpr std::size_t kIpv6Size = 40;
inline constexpr std::size_t kUdpSize = 8;
inline constexpr std::size_t kMaxIpUdpSize = kIpv6Size + kUdpSize;
/// The largest UDP payloads: the lengths of their headers have 16 bits, and IPv4 counts its own
/// header in.
inline constexpr std::size_t kMaxIpv4UdpPayloadSize = 65535 - kIpv4Size - kUdpSize;
inline constexpr std::size_t kMaxIpv6UdpPayloadSize = 65535 - kUdpSize;

/// True when packets of this path have an IPv4 header: both its addresses are IPv4.
[[nodiscard]] inline bool is_ipv4(const Path& path) {
  return path.source.is_ipv4() && path.destination.is_ipv4();
}

/// Writes the IP header (IPv4: IHL 5, DF, header checksum computed; IPv6 without extension headers)
/// and the UDP header to port 4791 of a packet with `udp_payload_size` bytes, ICRC included, no
/// more than fit (checked). Returns the bytes written, at most kMaxIpUdpSize. `identification` is
/// ignored for IPv6.
std::size_t encode_ip_udp(const Path& path, std::uint16_t identification,
                          std::uint16_t udp_checksum, std::size_t udp_payload_size, std::byte* to);

/// The GRH space of a datagram that came over `path`: the IPv6 header, or the IPv4 header in bytes
/// 20..39 (A17.4.5.2). A receiver that cannot see the identification passes 0.
[[nodiscard]] Grh make_grh(const Path& path, std::uint16_t identification,
                           std::size_t udp_payload_size);

/// The Internet checksum over an IPv4 header of kIpv4Size bytes: 0 when the checksum within it is
/// right, the checksum to store when it is 0.
[[nodiscard]] std::uint16_t ipv4_checksum(const std::byte* header);

}  // namespace verbena::wire
