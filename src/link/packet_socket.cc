// SPDX-License-Identifier: Apache-2.0
#include "link/packet_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>

#include <algorithm>

#include "link/udp_socket.h"

namespace verbena::link {
namespace {

constexpr int kReceiveBuffer = 4 << 20;

std::unexpected<Error> kernel_refuses(const std::string& interface) {
  const int error = errno;
  if (error == EPERM)
    return fail(std::errc::operation_not_permitted,
                fmt::format("raw frames on {} need CAP_NET_RAW: run as root, or in a user and "
                            "network namespace of your own (unshare -rn)",
                            interface));
  return fail(static_cast<std::errc>(error), fmt::format("no raw frames on {}: {}", interface,
                                                         std::generic_category().message(error)));
}

Result<sockaddr_ll> own_address(int fd) {
  sockaddr_ll at{};
  socklen_t size = sizeof at;
  if (sys::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    return fail(static_cast<std::errc>(errno), "a packet socket has no address");
  return at;
}

}  // namespace

Result<sys::OwnedFd> open_packet_socket(const std::string& interface) {
  const unsigned index = ::if_nametoindex(interface.c_str());
  if (index == 0)
    return fail(std::errc::no_such_device,
                fmt::format("raw frames on {}: no interface is called that", interface));
  // With a protocol it would hear every interface until it is bound.
  sys::OwnedFd fd(sys::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return kernel_refuses(interface);
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(ETH_P_ALL);
  at.sll_ifindex = static_cast<int>(index);
  set_receive_buffer(fd.get(), kReceiveBuffer);
  if (sys::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return kernel_refuses(interface);
  const sockaddr_ll bound = VERBENA_TRY(own_address(fd.get()));
  if (bound.sll_hatype != ARPHRD_ETHER)
    return fail(std::errc::invalid_argument,
                fmt::format("raw frames on {}, which is no Ethernet", interface));
  return fd;
}

Result<MacAddress> mac_of_packet_socket(int fd) {
  const sockaddr_ll bound = VERBENA_TRY(own_address(fd));
  MacAddress mac;
  std::ranges::copy(std::as_bytes(std::span(bound.sll_addr)).first(mac.size()), mac.begin());
  return mac;
}

}  // namespace verbena::link
