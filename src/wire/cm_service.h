// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "wire/address.h"

/// How rdma_cm puts IP addresses and ports into the connection manager's messages (Annex A11, "RDMA
/// IP CM service", as Linux's `cma.c` writes it and the captures show).
namespace verbena::wire {

/// RDMA port spaces, with the numbers that `enum rdma_ucm_port_space` gives them.
enum class PortSpace : std::uint16_t {
  kIpoib = 0x0002,
  kTcp = 0x0106,
  kUdp = 0x0111,
  kIb = 0x013F
};

/// 0x0000000001060000 | port for TCP, and so on.
[[nodiscard]] constexpr std::uint64_t service_id(PortSpace space, std::uint16_t port) {
  return (static_cast<std::uint64_t>(space) << 16) | port;
}

struct ServicePort {
  PortSpace space{};
  std::uint16_t port = 0;

  bool operator==(const ServicePort&) const = default;
};
/// Nothing when the service is not a port of one of the spaces.
[[nodiscard]] std::optional<ServicePort> service_port(std::uint64_t service_id);

/// The head of a REQ's or SIDR REQ's private data, before the program's.
struct CmAddressHeader {
  static constexpr std::size_t kSize = 36;
  std::uint16_t source_port = 0;
  Address source{};
  Address destination{};

  /// From at least kSize bytes. Nothing when the version is another one than 0, or the addresses
  /// are neither IPv4 nor IPv6. What stands before an IPv4 address is not looked at.
  [[nodiscard]] static std::optional<CmAddressHeader> parse(const std::byte* from);
  /// To at least kSize bytes: as IPv4 when both addresses are, else as IPv6.
  void encode(std::byte* to) const;
  bool operator==(const CmAddressHeader&) const = default;
};

}  // namespace verbena::wire
