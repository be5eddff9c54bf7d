// SPDX-License-Identifier: Apache-2.0
#include "link/udp_socket.h"

#include <fmt/format.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "link/local_address.h"

namespace verbena::link {
namespace {

struct Option {
  int level;
  int name;
  int value;
  bool required;
  std::string_view what;
};

// IP_PMTUDISC_DO sets DF and makes the identification 0 in a single packet and the segment's index
// in a segmented send. Without UDP_GRO all works, slower. Linux's rxe sends no UDP checksum over
// IPv6 either, which the kernel takes from nobody unless told to.
constexpr Option kIpv4Options[] = {
    {IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, true, "IP_MTU_DISCOVER"},
    {IPPROTO_IP, IP_MULTICAST_ALL, 0, false, "IP_MULTICAST_ALL"},
    {IPPROTO_UDP, UDP_GRO, 1, false, "UDP_GRO"},
};
constexpr Option kIpv6Options[] = {
    {IPPROTO_IPV6, IPV6_V6ONLY, 1, true, "IPV6_V6ONLY"},
    {IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO, true, "IPV6_MTU_DISCOVER"},
    {IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0, false, "IPV6_MULTICAST_ALL"},
    {IPPROTO_UDP, UDP_NO_CHECK6_RX, 1, true, "UDP_NO_CHECK6_RX"},
    {IPPROTO_UDP, UDP_GRO, 1, false, "UDP_GRO"},
};

/// `error` is the errno, which the caller took before it made the text.
std::unexpected<Error> kernel_refuses(int error, std::string_view what) {
  return fail(static_cast<std::errc>(error),
              fmt::format("{}: {}", what, std::generic_category().message(error)));
}

Result<void> set_option(int fd, const Option& option) {
  if (sys::setsockopt(fd, option.level, option.name, &option.value, sizeof option.value) == 0 ||
      !option.required)
    return {};
  const int error = errno;
  return kernel_refuses(error, fmt::format("the kernel refuses the socket option {}", option.what));
}

/// A socket with the options of its family, and one that lets it share its address, if any.
Result<sys::OwnedFd> open_bound(const SocketAddress& local, const std::optional<Option>& sharing) {
  sys::OwnedFd fd(sys::socket(local.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return kernel_refuses(errno, "no UDP socket can be made");
  if (sharing) VERBENA_TRY(set_option(fd.get(), *sharing));
  if (local.family() == AF_INET) {
    for (const Option& option : kIpv4Options) VERBENA_TRY(set_option(fd.get(), option));
  } else {
    for (const Option& option : kIpv6Options) VERBENA_TRY(set_option(fd.get(), option));
  }
  if (sys::bind(fd.get(), local.get(), local.size()) != 0) {
    const int error = errno;
    return kernel_refuses(error, fmt::format("UDP port {} at {} cannot be bound", local.port(),
                                             wire::to_string(local.address())));
  }
  return fd;
}

/// The interface of an IPv6 address, 0 for another one: the kernel finds an IPv4 address's itself.
std::uint32_t interface_of(const wire::Address& address) {
  if (address.is_ipv4()) return 0;
  const auto local = find_local(address);
  return local ? local->index : 0;
}

int join(int fd, const wire::Address& group, std::uint32_t interface) {
  if (group.is_ipv4()) {
    const ip_mreqn request{.imr_multiaddr = {detail::big_endian(group.ipv4())},
                           .imr_address = {},
                           .imr_ifindex = static_cast<int>(interface)};
    return sys::setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request);
  }
  ipv6_mreq request{};
  std::memcpy(&request.ipv6mr_multiaddr, group.gid.data(), group.gid.size());
  request.ipv6mr_interface = interface;
  return sys::setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request);
}

}  // namespace

SocketAddress::SocketAddress(const wire::Address& address, std::uint16_t port,
                             std::uint32_t scope) {
  if (address.is_ipv4()) {
    storage_.v4.sin_family = AF_INET;
    storage_.v4.sin_port = detail::big_endian(port);
    storage_.v4.sin_addr.s_addr = detail::big_endian(address.ipv4());
    size_ = sizeof storage_.v4;
  } else {
    storage_.v6.sin6_family = AF_INET6;
    storage_.v6.sin6_port = detail::big_endian(port);
    std::memcpy(&storage_.v6.sin6_addr, address.gid.data(), address.gid.size());
    const bool scoped = address.is_link_local() || address.is_multicast();
    storage_.v6.sin6_scope_id = scoped ? scope : 0;
    size_ = sizeof storage_.v6;
  }
}

void SocketAddress::clear() {
  storage_ = {};
  size_ = sizeof storage_;
}

wire::Address SocketAddress::address() const {
  if (family() == AF_INET)
    return wire::Address::from_ipv4(detail::big_endian(std::uint32_t{storage_.v4.sin_addr.s_addr}));
  wire::Address address;
  if (family() == AF_INET6)
    std::memcpy(address.gid.data(), &storage_.v6.sin6_addr, address.gid.size());
  return address;
}

std::uint16_t SocketAddress::port() const {
  // The port stands at the same place in both forms.
  return detail::big_endian(std::uint16_t{storage_.v4.sin_port});
}

std::uint32_t SocketAddress::scope() const {
  return family() == AF_INET6 ? storage_.v6.sin6_scope_id : 0;
}

Result<sys::OwnedFd> open_udp_socket(const wire::Address& address, std::uint16_t port,
                                     Sharing sharing) {
  const std::uint32_t interface = interface_of(address);
  std::optional<Option> option;
  if (sharing == Sharing::kReusePort) option = {SOL_SOCKET, SO_REUSEPORT, 1, true, "SO_REUSEPORT"};
  sys::OwnedFd fd = VERBENA_TRY(open_bound(SocketAddress(address, port, interface), option));
  // An IPv4 socket sends multicasts by the interface of its address anyhow.
  if (interface != 0)
    sys::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_MULTICAST_IF, &interface, sizeof interface);
  return fd;
}

Result<sys::OwnedFd> open_group_socket(const wire::Address& group, std::uint16_t port,
                                       std::uint32_t interface) {
  // Where all have this option, the kernel gives each socket its copy of a multicast.
  constexpr Option kShared{SOL_SOCKET, SO_REUSEADDR, 1, true, "SO_REUSEADDR"};
  sys::OwnedFd fd = VERBENA_TRY(open_bound(SocketAddress(group, port, interface), kShared));
  if (join(fd.get(), group, interface) != 0) {
    const int error = errno;
    return kernel_refuses(error,
                          fmt::format("the group {} cannot be joined", wire::to_string(group)));
  }
  return fd;
}

Result<SocketAddress> bound_address(int fd) {
  SocketAddress address;
  address.clear();
  socklen_t size = address.size();
  if (sys::getsockname(fd, address.get(), &size) != 0)
    return fail(static_cast<std::errc>(errno), "the socket has no address");
  if (address.family() != AF_INET && address.family() != AF_INET6)
    return fail(std::errc::address_family_not_supported, "not an IP socket");
  return SocketAddress(address.address(), address.port(), address.scope());
}

void set_ip_header_reports(int fd, bool wanted) {
  // Of the two families one has these options.
  const int value = wanted ? 1 : 0;
  sys::setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &value, sizeof value);
  sys::setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &value, sizeof value);
  sys::setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &value, sizeof value);
  sys::setsockopt(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &value, sizeof value);
}

bool set_send_options(int fd, int family, const SendOptions& options) {
  const bool ipv4 = family == AF_INET;
  const Option list[] = {
      {ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS, options.traffic_class, true,
       "the traffic class"},
      {ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TTL : IPV6_UNICAST_HOPS, options.hop_limit, true,
       "the hop limit"},
      {ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MULTICAST_TTL : IPV6_MULTICAST_HOPS,
       options.hop_limit, true, "the hop limit of multicasts"},
      {IPPROTO_UDP, UDP_SEGMENT, options.segment_size, true, "UDP_SEGMENT"},
  };
  return std::ranges::all_of(
      list, [fd](const Option& option) { return set_option(fd, option).has_value(); });
}

void set_receive_buffer(int fd, int bytes) {
  sys::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

std::size_t receive_buffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  const bool said = sys::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size) == 0 && bytes > 0;
  return said ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace verbena::link
