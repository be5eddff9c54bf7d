// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/sys.h"
#include "wire/address.h"

namespace verbena::link {

/// An address in the form of the socket calls: sockaddr_in for IPv4, sockaddr_in6 otherwise.
class SocketAddress {
 public:
  SocketAddress() = default;
  /// `scope` is the interface of an IPv6 link-local or multicast address; it counts for no other.
  SocketAddress(const wire::Address& address, std::uint16_t port, std::uint32_t scope = 0);

  [[nodiscard]] const sockaddr* get() const { return &storage_.plain; }
  [[nodiscard]] sockaddr* get() { return &storage_.plain; }
  [[nodiscard]] socklen_t size() const { return size_; }
  [[nodiscard]] int family() const { return storage_.plain.sa_family; }
  /// Room for a call to fill in; `size()` is then the whole of it.
  void clear();

  [[nodiscard]] wire::Address address() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::uint32_t scope() const;

 private:
  union Storage {
    sockaddr plain;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  Storage storage_{};
  socklen_t size_ = 0;
};

/// How a bind shares its address.
enum class Sharing : std::uint8_t { kExclusive, kReusePort };

/// A UDP socket as UdpLink needs it: receive offload, DF without path MTU guesses (so that the
/// kernel writes the identifications that the ICRC was made for), bound to (address, port); port 0
/// takes any. Not connected: a connected socket numbers its packets (`udp_outlet.h`). What it sends
/// to multicast groups leaves by the interface of its address. The error's condition is the
/// kernel's, address_in_use among them.
[[nodiscard]] Result<sys::OwnedFd> open_udp_socket(const wire::Address& address, std::uint16_t port,
                                                   Sharing sharing);

/// A UDP socket for what is sent to a multicast group and port and comes in by one interface (its
/// number): beside other such sockets, of any process and user, each of which gets its own copy. As
/// open_udp_socket() else.
[[nodiscard]] Result<sys::OwnedFd> open_group_socket(const wire::Address& group, std::uint16_t port,
                                                     std::uint32_t interface);

/// The address and port a socket is bound to.
[[nodiscard]] Result<SocketAddress> bound_address(int fd);

/// Whether what is received comes with the traffic class and hop limit of its IP header.
void set_ip_header_reports(int fd, bool wanted);

/// What a socket does to its sends unless a send says otherwise, or what a send says.
struct SendOptions {
  std::uint16_t segment_size = 0;  ///< what to cut it into (UDP_SEGMENT); 0: not at all
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  bool operator==(const SendOptions&) const = default;
};
/// Sets them on a socket of `family`; false when the kernel refused one, with others set or not.
bool set_send_options(int fd, int family, const SendOptions& options);

/// Asks for `bytes` of receive buffer; the kernel grants what net.core.rmem_max allows.
void set_receive_buffer(int fd, int bytes);
/// What a socket's receive buffer holds, with what the kernel counts for its own; 0 when it does
/// not say.
[[nodiscard]] std::size_t receive_buffer(int fd);

}  // namespace verbena::link
