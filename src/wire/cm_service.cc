// SPDX-License-Identifier: Apache-2.0
#include "wire/cm_service.h"

#include <algorithm>

namespace verbena::wire {
namespace {

// What stands where, counted from the header's first byte.
constexpr std::size_t kVersionOffset = 0;
constexpr std::size_t kIpVersionOffset = 1;  // the upper four bits
constexpr std::size_t kPortOffset = 2;
constexpr std::size_t kSourceOffset = 4;
constexpr std::size_t kDestinationOffset = 20;
constexpr std::size_t kIpv4Offset = 12;  // of an IPv4 address within its sixteen bytes

Address load_address(const std::byte* from, bool ipv4) {
  if (ipv4) return Address::from_ipv4(load_be<std::uint32_t>(from + kIpv4Offset));
  Address address;
  std::copy_n(from, address.gid.size(), address.gid.begin());
  return address;
}

void store_address(std::byte* to, const Address& address, bool ipv4) {
  if (ipv4) {
    std::fill_n(to, kIpv4Offset, std::byte{0});
    store_be(to + kIpv4Offset, address.ipv4());
  } else {
    std::ranges::copy(address.gid, to);
  }
}

}  // namespace

std::optional<ServicePort> service_port(std::uint64_t service_id) {
  for (const PortSpace space :
       {PortSpace::kIpoib, PortSpace::kTcp, PortSpace::kUdp, PortSpace::kIb})
    if (service_id >> 16 == static_cast<std::uint64_t>(space))
      return ServicePort{.space = space, .port = static_cast<std::uint16_t>(service_id)};
  return std::nullopt;
}

std::optional<CmAddressHeader> CmAddressHeader::parse(const std::byte* from) {
  const auto ip_version = std::to_integer<unsigned>(from[kIpVersionOffset] >> 4);
  if (from[kVersionOffset] != std::byte{0} || (ip_version != 4 && ip_version != 6))
    return std::nullopt;
  const bool ipv4 = ip_version == 4;
  return CmAddressHeader{.source_port = load_be<std::uint16_t>(from + kPortOffset),
                         .source = load_address(from + kSourceOffset, ipv4),
                         .destination = load_address(from + kDestinationOffset, ipv4)};
}

void CmAddressHeader::encode(std::byte* to) const {
  const bool ipv4 = source.is_ipv4() && destination.is_ipv4();
  to[kVersionOffset] = std::byte{0};
  to[kIpVersionOffset] = ipv4 ? std::byte{4 << 4} : std::byte{6 << 4};
  store_be(to + kPortOffset, source_port);
  store_address(to + kSourceOffset, source, ipv4);
  store_address(to + kDestinationOffset, destination, ipv4);
}

}  // namespace verbena::wire
