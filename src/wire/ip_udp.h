// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/address.h"
#include "wire/headers.h"

/// The headers that stand before a packet's BTH, IP and UDP in RoCEv2 and the GRH in RoCEv1, for
/// all who need them as bytes: frames, the ICRC and the header that a UD receiver sees.
namespace verbena::wire {

inline constexpr std::size_t kIpv4Size = 20;
inline constexpr std::size_t kIpv6Size = 40;
inline constexpr std::size_t kUdpSize = 8;
inline constexpr std::size_t kMaxNetworkHeaderSize = kIpv6Size + kUdpSize;
/// The largest UDP payloads: the lengths of their headers have 16 bits, and IPv4 counts its own
/// header in.
inline constexpr std::size_t kMaxIpv4UdpPayloadSize = 65535 - kIpv4Size - kUdpSize;
inline constexpr std::size_t kMaxIpv6UdpPayloadSize = 65535 - kUdpSize;
inline constexpr std::size_t kMaxGrhPayloadSize = 65535;

/// True when packets of this path have an IPv4 header: both its addresses are IPv4.
[[nodiscard]] inline bool is_ipv4(const Path& path) {
  return !path.roce_v1 && path.source.is_ipv4() && path.destination.is_ipv4();
}

/// Writes the IP header (IPv4: IHL 5, DF, header checksum computed; IPv6 without extension headers)
/// and the UDP header to port 4791, or the GRH (IBA 8.3), of a packet with `payload_size` bytes
/// from BTH to ICRC, no more than fit (checked). Returns the bytes written, at most
/// kMaxNetworkHeaderSize. `identification` is IPv4's, `udp_checksum` UDP's.
std::size_t encode_network_headers(const Path& path, std::uint16_t identification,
                                   std::uint16_t udp_checksum, std::size_t payload_size,
                                   std::byte* to);

/// The GRH space of a datagram that came over `path`: its GRH, the IPv6 header, or the IPv4 header
/// in bytes 20..39 (A17.4.5.2). A receiver that cannot see the identification passes 0.
[[nodiscard]] Grh make_grh(const Path& path, std::uint16_t identification,
                           std::size_t payload_size);

/// The Internet checksum over an IPv4 header of kIpv4Size bytes: 0 when the checksum within it is
/// right, the checksum to store when it is 0.
[[nodiscard]] std::uint16_t ipv4_checksum(const std::byte* header);

}  // namespace verbena::wire
