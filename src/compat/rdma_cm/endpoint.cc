// SPDX-License-Identifier: Apache-2.0
#include "compat/rdma_cm/endpoint.h"

#include <netinet/in.h>

#include <cstring>

namespace verbena::compat::rdma_cm {

std::size_t size_of_family(sa_family_t family) {
  switch (family) {
    case AF_INET: return sizeof(sockaddr_in);
    case AF_INET6: return sizeof(sockaddr_in6);
    default: return 0;
  }
}

sa_family_t family_of(const void* from) {
  sa_family_t family{};
  std::memcpy(&family, from, sizeof family);
  return family;
}

Result<Endpoint> read_endpoint(const void* from, std::size_t size) {
  const sa_family_t family = size < sizeof(sa_family_t) ? sa_family_t{} : family_of(from);
  const std::size_t needed = size_of_family(family);
  if (needed == 0 || size < needed)
    return fail(std::errc::address_family_not_supported, "not an IPv4 or IPv6 address");
  Endpoint endpoint{.family = family};
  if (family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, from, sizeof address);
    endpoint.port = ntohs(address.sin_port);
    if (address.sin_addr.s_addr != INADDR_ANY)
      endpoint.address = wire::Address::from_ipv4(ntohl(address.sin_addr.s_addr));
    return endpoint;
  }
  sockaddr_in6 address{};
  std::memcpy(&address, from, sizeof address);
  endpoint.port = ntohs(address.sin6_port);
  endpoint.scope = address.sin6_scope_id;
  std::memcpy(endpoint.address.gid.data(), &address.sin6_addr, sizeof address.sin6_addr);
  return endpoint;
}

sockaddr_storage to_sockaddr(const Endpoint& endpoint) {
  sockaddr_storage to{};
  if (endpoint.family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    if (endpoint.address.is_ipv4()) address.sin_addr.s_addr = htonl(endpoint.address.ipv4());
    std::memcpy(&to, &address, sizeof address);
  } else if (endpoint.family == AF_INET6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(endpoint.port);
    address.sin6_scope_id = endpoint.scope;
    std::memcpy(&address.sin6_addr, endpoint.address.gid.data(), sizeof address.sin6_addr);
    std::memcpy(&to, &address, sizeof address);
  }
  return to;
}

}  // namespace verbena::compat::rdma_cm
