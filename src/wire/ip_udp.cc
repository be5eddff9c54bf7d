// SPDX-License-Identifier: Apache-2.0
#include "wire/ip_udp.h"

#include <array>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace verbena::wire {
namespace {

constexpr std::uint8_t kUdpProtocol = 17;
constexpr std::uint8_t kIbaTransport = 0x1B;  // behind a GRH: a BTH

std::byte* encode_ipv4(const Path& path, std::uint16_t identification, std::size_t udp_size,
                       std::byte* to) {
  to[0] = std::byte{0x45};  // version 4, IHL 5
  to[1] = static_cast<std::byte>(path.traffic_class);
  store_be(to + 2, static_cast<std::uint16_t>(kIpv4Size + udp_size));
  store_be(to + 4, identification);
  store_be(to + 6, std::uint16_t{0x4000});  // DF, offset 0
  to[8] = static_cast<std::byte>(path.hop_limit);
  to[9] = static_cast<std::byte>(kUdpProtocol);
  store_be(to + 10, std::uint16_t{0});
  std::memcpy(to + 12, path.source.gid.data() + 12, 4);
  std::memcpy(to + 16, path.destination.gid.data() + 12, 4);
  store_be(to + 10, ipv4_checksum(to));
  return to + kIpv4Size;
}

/// An IPv6 header, or a GRH, which is laid out alike.
std::byte* encode_ipv6(const Path& path, std::uint8_t next_header, std::size_t size,
                       std::byte* to) {
  store_be(to, (std::uint32_t{6} << 28) | (std::uint32_t{path.traffic_class} << 20) |
                   (path.flow_label & 0xFFFFF));
  store_be(to + 4, static_cast<std::uint16_t>(size));
  to[6] = static_cast<std::byte>(next_header);
  to[7] = static_cast<std::byte>(path.hop_limit);
  std::memcpy(to + 8, path.source.gid.data(), 16);
  std::memcpy(to + 24, path.destination.gid.data(), 16);
  return to + kIpv6Size;
}

std::byte* encode_first(const Path& path, std::uint16_t identification, std::size_t payload_size,
                        std::byte* to) {
  if (path.roce_v1) {
    VERBENA_CHECK(payload_size <= kMaxGrhPayloadSize);
    return encode_ipv6(path, kIbaTransport, payload_size, to);
  }
  const bool ipv4 = is_ipv4(path);
  VERBENA_CHECK(payload_size <= (ipv4 ? kMaxIpv4UdpPayloadSize : kMaxIpv6UdpPayloadSize));
  const std::size_t udp_size = kUdpSize + payload_size;
  return ipv4 ? encode_ipv4(path, identification, udp_size, to)
              : encode_ipv6(path, kUdpProtocol, udp_size, to);
}

}  // namespace

std::size_t encode_network_headers(const Path& path, std::uint16_t identification,
                                   std::uint16_t udp_checksum, std::size_t payload_size,
                                   std::byte* to) {
  std::byte* udp = encode_first(path, identification, payload_size, to);
  if (path.roce_v1) return static_cast<std::size_t>(udp - to);
  store_be(udp, path.source_port);
  store_be(udp + 2, kRoceUdpPort);
  store_be(udp + 4, static_cast<std::uint16_t>(kUdpSize + payload_size));
  store_be(udp + 6, udp_checksum);
  return static_cast<std::size_t>(udp + kUdpSize - to);
}

Grh make_grh(const Path& path, std::uint16_t identification, std::size_t payload_size) {
  Grh grh;
  std::byte* to = grh.bytes.data() + (is_ipv4(path) ? Grh::kSize - kIpv4Size : 0);
  encode_first(path, identification, payload_size, to);
  return grh;
}

std::uint16_t ipv4_checksum(const std::byte* header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Size; i += 2) sum += load_be<std::uint16_t>(header + i);
  while ((sum >> 16) != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace verbena::wire
