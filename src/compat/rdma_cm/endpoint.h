// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/address.h"

namespace verbena::compat::rdma_cm {

/// An IP address and a port, as programs give them.
struct Endpoint {
  sa_family_t family = AF_UNSPEC;
  wire::Address address{};  ///< zero: any, of either family
  std::uint16_t port = 0;
  std::uint32_t scope = 0;  ///< of an IPv6 address: an interface's number

  [[nodiscard]] bool is_any() const { return address.is_zero(); }
  bool operator==(const Endpoint&) const = default;
};

/// How much of a sockaddr of that family counts; 0 for one that is not IP's (as rdma_addr_size()).
[[nodiscard]] std::size_t size_of_family(sa_family_t family);

/// From a sockaddr's bytes. address_family_not_supported when it is not IP's or too short.
[[nodiscard]] Result<Endpoint> read_endpoint(const void* from, std::size_t size);
/// The family that stands in front of it.
[[nodiscard]] sa_family_t family_of(const void* from);

/// As a sockaddr, with zeroes behind; all zero without a family.
[[nodiscard]] sockaddr_storage to_sockaddr(const Endpoint& endpoint);

}  // namespace verbena::compat::rdma_cm
